"""What each source of images gives at each door: it works, or one sentence says what does."""

import importlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import s3fs
from PIL import Image, ImageOps
from starlette.testclient import TestClient

from polygrain.app.page import server
from polygrain.app.page.app import build
from polygrain.collection.file import File
from polygrain.collection.postprocessing import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.strength import SETTINGS
from polygrain.config.lists import Task
from polygrain.new.folders import Folder, examine
from polygrain.store import arrays
from polygrain.store.tables import read_csv
from stages import gallery, images
from tests import test_images
from tests.helpers import small
from tests.helpers.photos import write_fused, write_photos
from tests.polygrain.cli.test_embed import run
from tests.polygrain.sources import kinds


class Store(dict):
    """An object store as s3fs has it: {address without its scheme: bytes}."""

    def find(self, url: str, detail: bool) -> dict[str, dict]:
        return {name: {"size": len(content), "type": "file", "ETag": "1"} for name, content in self.items()}

    def cat_file(self, path: str) -> bytes:
        return self[path.removeprefix("s3://")]


class World(NamedTuple):
    """A source, what `new` says of it, and the folder of data that the stages made of it; its cut images by path."""

    source: str
    given: str
    found: Folder
    data: Path

    @property
    def file(self) -> Path:
        return self.data / "gallery/shoes/embeddings.parquet"

    @property
    def names(self) -> list[str]:
        return pq.read_table(self.data / "images/shoes/table.parquet")["path"].to_pylist()


def samples() -> dict[str, Callable[[Path, dict[str, bytes]], str]]:
    """Each function sample_<source> beside the tests of the kinds: it lays images, {path: bytes}, and says where."""
    files = [importlib.import_module(f"{kinds.__name__}.{found.name}") for found in iter_modules(kinds.__path__)]
    parts = [(name.partition("_"), value) for file in files for name, value in vars(file).items()]
    return {name: value for (start, _, name), value in parts if start == "sample"}


@pytest.fixture(scope="module", params=samples())
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All that a run makes of a source, as far as the doors need it."""
    root, source, store = tmp_path_factory.mktemp("world"), request.param, Store()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3fs, "S3FileSystem", lambda **_: store)
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        folder = write_photos(root / "photos") / "dots"
        contents = {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.png"))}
        given = samples()[source](root, contents)
        found, data = examine(given), root / "data"
        raw = Path(found.path)
        if found.listing:
            raw = root / "shoes.json"
            raw.write_text(found.listing)
        task = Task.model_construct(source=found.source, unseen=False, files=found.files)
        lists = small.lists().model_copy(update={"tasks": {"shoes": task}})
        params = test_images.PARAMS.model_copy(update={"side": small.SIZE, "protocol": "collection", "queries": 0.4})
        words = {"task": "shoes", "params": params, "lists": lists}
        images.main(raw, data / "images/shoes", **words)
        write_fused(data / "choice")
        Comparisons({"shoes": Comparison()}).write(data / "choice")
        count = len(arrays.open(data / "images/shoes/pixels.zarr"))
        small.store_features(data / "features/shoes", np.eye(count, dtype=np.float32))
        smoothing = gallery.Params(smoothing=SETTINGS)
        places = [data / place for place in ("images/shoes", "choice", "features/shoes", "gallery/shoes")]
        gallery.main(*places, task="shoes", params=smoothing)
        (root / "params.yaml").write_text(f"paths: {{shoes: '{raw}'}}")
        yield World(source, given, found, data)


def said(world: World, monkeypatch: pytest.MonkeyPatch, *words: object) -> str | None:
    """What a command that takes a folder says of a source; None where it works, as it does for a folder alone."""
    code = run(monkeypatch, *words)
    if world.source == "folder":
        assert code == 0
        return None
    assert "data/gallery/<task>/embeddings.parquet" in code and "\n" not in code
    assert "does not exist" not in code and "missing or damaged" not in code
    return code


def test_new_and_run__the_same_images_of_every_source(world: World) -> None:
    assert sum(world.found.classes.values()) == 12 and len(world.found.classes) == 3
    assert len(world.names) == 12 and File(world.file).paths() == world.names


def test_embed__a_folder_or_one_sentence(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "e.parquet"
    error = said(world, monkeypatch, "embed", world.given, "-o", output, "--model", world.data / "choice")
    assert output.exists() == (error is None)


def test_search__what_a_run_made_of_every_source(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = tmp_path / "query.png"
    Image.fromarray(arrays.open(world.data / "images/shoes/pixels.zarr")[:][5]).save(query)
    assert run(monkeypatch, "search", query, "--in", world.file, "-k", 1) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-1] == world.names[5]
    said(world, monkeypatch, "search", query, "--in", world.given, "--model", world.data / "choice")


def test_duplicates__what_a_run_made_of_every_source(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = tmp_path / "pairs.csv"
    assert run(monkeypatch, "search", "--duplicates", pairs, "--above", -1, "--in", world.file) == 0
    assert {row["path"] for row in read_csv(pairs)} <= set(world.names) and len(read_csv(pairs)) >= 66
    words = ("--in", world.given, "--model", world.data / "choice")
    said(world, monkeypatch, "search", "--duplicates", tmp_path / "more.csv", *words)


def test_page__shows_and_compares_what_a_run_made_of_every_source(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list = []
    monkeypatch.setattr(server, "listen", lambda port: None)
    monkeypatch.setattr(server, "run", lambda _, sides, above: served.append((sides, above)))
    assert run(monkeypatch, "search", "--page", "--in", world.file) == 0
    ((sides, above),) = served
    client = TestClient(build(sides, above))
    pixels = arrays.open(world.data / "images/shoes/pixels.zarr")[:]
    for row in range(12):
        with Image.open(io.BytesIO(client.get(f"image/{row}").content)) as shown:
            square = np.asarray(ImageOps.fit(shown, (32, 32), Image.Resampling.BOX)).astype(int)
            assert max(shown.size) == 224 and np.abs(square - pixels[row]).mean() < 20
    of_row = client.post("search?row=5&k=3").json()
    stream = io.BytesIO()
    Image.fromarray(pixels[5]).save(stream, "PNG")
    of_file = client.post("search?k=4", content=stream.getvalue()).json()
    assert [len(side) for side in of_row["sides"]] == [3, 3] and of_row["asked"]["path"] == world.names[5]
    assert [side[0]["row"] for side in of_file["sides"]] == [5, 5]
    assert [hit["row"] for hit in of_file["sides"][1][1:]] == [hit["row"] for hit in of_row["sides"][1]]
    assert client.post("search?row=5&box=0,0,0.5,0.5").status_code == client.post("preview?row=5").status_code == 200
    assert client.post("search?row=12").status_code == client.get("image/12").status_code == 404
    assert client.get("right").json()["asked"] == 12 and client.get("about").json()["folders"] == 3
    assert of_row["mates"] == 3
    said(world, monkeypatch, "search", "--page", "--in", world.given, "--model", world.data / "choice")


def test_page__without_the_squares_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.data / "images/shoes/table.parquet"
    monkeypatch.setattr(server, "listen", lambda port: None)
    monkeypatch.setattr(server, "run", lambda *_: None)
    table.rename(table.with_suffix(".away"))
    try:
        words = ("search", "--page", "--in", world.file)
        code = run(monkeypatch, *words)
        assert code == 0 if world.source == "folder" else "is not there; " in code
    finally:
        table.with_suffix(".away").rename(table)
