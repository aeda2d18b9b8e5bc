import pytest

from polygrain.runner import outputs


def test_folder__appears_whole_and_replaces_the_old_one(tmp_path):
    output = tmp_path / "data" / "stage"
    for text in ("first", "second"):
        with outputs.folder(output) as folder:
            (folder / text).write_text(text)
            assert not (output / text).exists()
        assert sorted(path.name for path in output.iterdir()) == [text]
    assert [path.name for path in output.parent.iterdir()] == ["stage"]


def test_folder__leaves_nothing_after_an_error(tmp_path):
    with pytest.raises(RuntimeError), outputs.folder(tmp_path / "out") as folder:
        (folder / "half").write_text("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_folder__a_leftover_of_a_killed_run_does_not_get_in(tmp_path):
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "stale").write_text("x")
    with outputs.folder(tmp_path / "out") as folder:
        (folder / "fresh").write_text("x")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["fresh"]
