"""What the pages are told of a stage, without a server: one artifact for each kind, renewed in place."""

import pytest
from prefect.logging import disable_run_logger

from pipeline import shown

LINES = (
    "Running stage 'a@b':",
    "epoch 1/2: 1 of 2, loss 2",
    "epoch 1/2: 2 of 2, loss 1",
    "epoch 2/2: 2 of 2, loss 0.5",
)


@pytest.fixture
def pages(monkeypatch):
    """Every call that would reach the server, in order."""
    calls = []

    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update_artifact(self, artifact, update):
            calls.append(("renewed", artifact, update.data))

    def create(kind):
        def created(data, key, description):
            calls.append(("made", key, description if kind == "bar" else data))
            return f"id of {key}"

        return created

    def renewed(artifact, share, description):
        calls.append((share, artifact, description))

    monkeypatch.setattr(shown, "create_progress_artifact", create("bar"))
    monkeypatch.setattr(shown, "create_markdown_artifact", create("curves"))
    monkeypatch.setattr(shown, "get_client", lambda sync_client: Client())
    monkeypatch.setattr(
        shown,
        "update_progress_artifact",
        lambda artifact, share, description: calls.append((share, artifact, description)),
    )
    for name in ("SECONDS_BETWEEN_BARS", "SECONDS_BETWEEN_CURVES"):
        monkeypatch.setattr(shown, name, 0)
    return calls


def test_shown__one_artifact_of_each_kind_renewed_in_place(pages):
    stage = shown.Shown("a@b")
    for line in LINES:
        stage.hear(line)
    stage.finish("ran")
    made = [key for word, key, _ in pages if word == "made"]
    assert made == ["progress-a-b", "curves-a-b"]
    bars = [(share, said) for share, artifact, said in pages if artifact == "id of progress-a-b"]
    assert bars == [(50.0, f"a@b: {LINES[2]}"), (100.0, f"a@b: {LINES[3]}"), (100.0, "a@b: ran")]
    curves = [text for word, artifact, text in pages if word == "renewed" and artifact == "id of curves-a-b"]
    assert len(curves) == 3 and "| loss | 0.5 | 0.5 | 2 |" in curves[-1]


def test_shown__not_more_often_than_the_server_can_keep(pages, monkeypatch):
    for name in ("SECONDS_BETWEEN_BARS", "SECONDS_BETWEEN_CURVES"):
        monkeypatch.setattr(shown, name, 1000)
    stage = shown.Shown("a@b")
    for line in LINES:
        stage.hear(line)
    assert len(pages) == 2
    stage.finish("failed")
    # What came last is not lost.
    assert len(pages) == 4 and "| loss | 0.5 | 0.5 | 2 |" in pages[-1][2]


def test_shown__a_short_stage_has_none(pages):
    stage = shown.Shown("a@b")
    stage.hear("Running stage 'a@b':")
    stage.finish("ran")
    assert pages == []


def test_shown__a_server_that_is_gone_costs_no_training(pages, monkeypatch, tmp_path):
    def refuse(*arguments, **named):
        raise OSError("gone")

    for name in ("create_progress_artifact", "create_markdown_artifact"):
        monkeypatch.setattr(shown, name, refuse)
    (tmp_path / "a@b").touch()  # nor does a board that cannot be written
    stage = shown.Shown("a@b", tmp_path)
    with disable_run_logger():
        for line in LINES:
            stage.hear(line)
        stage.finish("ran")


def test_shown__writes_the_board(pages, tmp_path):
    stage = shown.Shown("a@b", tmp_path)
    for line in LINES:
        stage.hear(line)
    stage.finish("ran")
    assert [file.name.split(".")[2] for file in (tmp_path / "a@b").iterdir()] == ["tfevents"]
