import shutil
import socket
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from polygrain import Collection
from polygrain.app.page import server
from polygrain.app.page.app import build
from polygrain.cli.search import shown, sides_of
from polygrain.collection.postprocessing import Comparison
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.encoder.kept import digest, keeping
from polygrain.store.tables import read_csv
from tests.helpers import drawn
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
        assert f"1 entry of {photos} left out: " in err
        (file,) = cache.glob("*.parquet")
        times.add(file.stat().st_mtime_ns)
    assert len(times) == 1
    pairs = photos.parent / "pairs.csv"
    assert run(monkeypatch, "search", "--duplicates", pairs, "--above", 0.5, "--in", photos, "--model", fused) == 0
    assert capsys.readouterr().out.startswith(f"{pairs}: ")
    rows = read_csv(pairs)
    assert rows and all(row["kind"] == "duplicate" and float(row["cosine"]) >= 0.5 for row in rows)


def test_search__first_bytes_tell_a_table(fused: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Collection.of(photos, fused, file=photos / "e.parquet")
    (photos / "e.parquet").rename(photos / "embeddings")
    assert run(monkeypatch, "search", photos / "dots/class2/1.png", "--in", photos / "embeddings") == 0


def test_sides_of__a_model_has_its_own_name_but_the_one_that_is_recommended(
    fused: Path, shared_photos: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(fused, tmp_path / "mine")
    collection = Collection.of(shared_photos, model, file=tmp_path / "e.parquet", smooth=False)

    def names(beside: Path | None = None) -> list[str]:
        return [side.name for side in sides_of(collection, None, True, beside)]

    assert names() == ["encoder", "mine"] and names(fused) == ["fused", "mine"]
    (model / "choice.json").touch()
    assert names() == ["encoder", "recommended model"]


def write_smoothed(file: Path, fused: Path, photos: Path) -> Path:
    """The photos by the model, their rows the other way round as smoothed ones."""
    plain = Collection.of(photos, fused, file=file)
    drawn.smoothed(plain, Comparison(smoothing=Smoothing(0.9, 3)), plain.plain[::-1].copy())
    return file


def test_search__options_mean_the_same_in_the_terminal_and_on_the_page(
    fused: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, query = write_smoothed(photos.parent / "e.parquet", fused, photos), photos / "dots/class2/1.png"
    served: list = []
    monkeypatch.setattr(server, "run", lambda listening, sides, above: served.append((listening.close(), sides, above)))
    for words in ((), ("--smooth",), ("--no-smooth",), ("--no-smooth", "-k", 3)):
        assert run(monkeypatch, "search", query, "--in", file, *words) == 0
        lines = capsys.readouterr().out.splitlines()[1:]
        assert run(monkeypatch, "search", "--page", "--port", 0, "--in", file, "--beside", fused, *words) == 0
        *_, (_, sides, above) = served
        reply = TestClient(build(sides, above)).post("search?k=3", content=query.read_bytes()).json()["sides"]
        assert [hit["path"] for hit in reply[1]] == [line.split()[-1] for line in lines[:3]]
        assert len(lines) == (3 if "-k" in words else 10) and (sides[1].shown == 3) == ("-k" in words)
        assert sides[0].places == 1  # so few are not smoothed
    assert served[0][1][1].start == 1 and served[-1][1][1].start == 0


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
    assert error("note.txt", "--in", embedded).startswith("note.txt cannot be embedded")
    assert error(query, "--in", embedded, model=other).startswith(f"{embedded} was made by model ")
    assert error("--duplicates", "pairs.csv", "--in", embedded, model=other).startswith(
        f"{embedded} was made by model "
    )
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
    assert run(monkeypatch, "search", query, "--in", file, "-k", 1) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "   1   1.000  dots/class2/1.png"
    # A file of an earlier version is named, with what makes it anew.
    table = pq.read_table(file)
    facts = {name: value for name, value in table.schema.metadata.items() if name != b"comparison"}
    pq.write_table(table.replace_schema_metadata(facts), photos.parent / "old.parquet")
    assert "polygrain embed" in run(monkeypatch, "search", query, "--in", photos.parent / "old.parquet")
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    assert f"{model} is another one now: name its folder" in run(monkeypatch, "search", query, "--in", file)
    shutil.rmtree(model)
    assert f"{model} is not there any more: name" in run(monkeypatch, "search", query, "--in", file)
    assert run(monkeypatch, "search", query, "--in", file, "--model", fused) == 0


def test_search__by_a_model_that_a_run_has_replaced_until_it_is_dropped(
    fused: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, file, made_by = tmp_path / "data/choice", tmp_path / "e.parquet", digest(fused)
    query = photos / "dots/class2/1.png"
    shutil.copytree(fused, model)
    assert run(monkeypatch, "embed", photos / "dots", "-o", file, "--model", model) == 0
    with keeping(tmp_path, ["choice"]):
        (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    assert run(monkeypatch, "search", query, "--in", file) == run(monkeypatch, "model", model) == 0
    assert f"earlier:   {tmp_path}/models/{made_by}" in capsys.readouterr().out
    assert f"there are: {made_by}" in run(monkeypatch, "model", model, "--drop", "no")
    assert run(monkeypatch, "model", model, "--drop", made_by) == 0
    assert "is another one now" in run(monkeypatch, "search", query, "--in", file)


def test_shown__no_letter_moves_the_cursor() -> None:
    assert shown("ä b.png") == "ä b.png" and shown("a\x1b[2J.png") == r"'a\x1b[2J.png'"
