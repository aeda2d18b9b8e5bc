import shutil
import socket
from pathlib import Path

import pytest

from polygrain.app.page import server
from polygrain.cli.search import shown
from polygrain.store import embeddings
from polygrain.store.tables import read_csv
from tests.helpers.photos import write_fused
from tests.polygrain.cli.test_embed import run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/polygrain"


def test_search__a_table_for_each_query_and_a_folder_is_embedded_once(
    fused: Path, photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "a.png").write_bytes(b"no image")
    query, times = photos / "dots/class2/1.png", set()
    for _ in range(2):
        assert run(monkeypatch, "search", query, query, "--in", photos, "--model", fused, "-k", 2) == 0
        out, err = capsys.readouterr()
        assert out.splitlines()[:3] == [str(query), "rank   score  path", "   1   1.000  dots/class2/1.png"]
        assert len(out.splitlines()) == 8
        assert f"1 entries of {photos} are left out" in err
        (file,) = cache.glob("*.parquet")
        times.add(file.stat().st_mtime_ns)
    assert len(times) == 1
    pairs = photos.parent / "pairs.csv"
    assert run(monkeypatch, "search", "--duplicates", pairs, "--above", 0.5, "--in", photos, "--model", fused) == 0
    assert capsys.readouterr().out.startswith(f"{pairs}: ")
    rows = read_csv(pairs)
    assert rows and all(row["kind"] == "duplicate" and float(row["cosine"]) >= 0.5 for row in rows)


def test_search__page_compares_with_the_encoder(fused: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr(server, "run", lambda listening, sides, above: served.append((listening.close(), sides)))
    beside = f"{fused}-encoder"
    for more in ((), ("--beside", beside)):
        assert run(monkeypatch, "search", "--page", "--port", 0, "--in", photos, "--model", fused, *more) == 0
    plain, named = [sides for _, sides in served]
    assert [side.name for side in plain] == ["encoder", "model"] and named[0].what == beside
    assert plain[0].model.adaptors == [] and plain[0].gallery.paths == plain[1].gallery.paths
    # Without its adaptors the model is that encoder.
    assert plain[0].gallery.vectors([3]) == pytest.approx(named[0].gallery.vectors([3]), abs=1e-6)


def test_search__says_what_is_wrong(fused: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    query, embedded = photos / "dots/class2/1.png", photos.parent / "e.parquet"
    run(monkeypatch, "embed", photos, "-o", embedded, "--model", fused)
    Path("note.txt").write_text("hello")
    other = write_fused(photos.parent / "other", seed=1)

    def error(*words: object, model: Path = fused) -> str:
        return run(monkeypatch, "search", *words, "--model", model).removeprefix("error: ")

    assert error("--in", photos).startswith("give image files to search for, or --page")
    assert error(query, "--in", photos, "--page") == error("--in", photos)
    assert error("note.txt", "--in", embedded).startswith("note.txt is left out")
    assert error(query, "--in", embedded, model=other).startswith(f"{embedded} was made by model ")
    assert error(query, "--in", "none").startswith("none does not exist")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert error("--page", "--in", photos, "--port", port).startswith(f"port {port} cannot be used")


def test_search__finds_the_model_that_made_a_file(
    fused: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, file, query = photos.parent / "model", photos.parent / "e.parquet", photos / "dots/class2/1.png"
    shutil.copytree(fused, model)
    assert run(monkeypatch, "embed", photos, "-o", file, "--model", model) == 0
    monkeypatch.chdir(photos)  # where there is no data/choice
    for _ in range(2):
        assert run(monkeypatch, "search", query, "--in", file, "-k", 1) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "   1   1.000  dots/class2/1.png"
        embeddings.annotate(file, {"setting": '{"axes": 20, "smoothed": 0}'})
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    assert f"{model} is another one now: name its folder" in run(monkeypatch, "search", query, "--in", file)
    shutil.rmtree(model)
    assert f"{model} is not there any more: name" in run(monkeypatch, "search", query, "--in", file)
    assert run(monkeypatch, "search", query, "--in", file, "--model", fused) == 0


def test_shown__no_letter_moves_the_cursor() -> None:
    assert shown("ä b.png") == "ä b.png" and shown("a\x1b[2J.png") == r"'a\x1b[2J.png'"
