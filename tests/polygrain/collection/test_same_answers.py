"""One model gives the same answers at every door: gallery, embed, page, exported programs, Python and the report."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from polygrain import Collection
from polygrain.app.export.program import trace
from polygrain.app.page.app import Page, Query
from polygrain.app.page.sides import Side
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.collection.postprocessing.strength import SETTINGS
from polygrain.encoder.model import Model, load
from polygrain.sources.decode import know_heif
from polygrain.store import arrays
from polygrain.store.image_table import read_table
from stages import evaluation, gallery
from stages import images as images_stage
from tests.helpers import icc, small
from tests.helpers.photos import write_fused
from tests.test_images import PARAMS

TASK, MOST = "dots", 1e-5


class World(NamedTuple):
    """A run's data, its images as files, and other images that ask."""

    data: Path
    model: Model
    comparison: Comparison
    photos: Path
    queries: list[Path]

    @property
    def choice(self) -> Path:
        return self.data / "choice"

    def expected(self, paths: list[str]) -> np.ndarray:
        """The cosine of each query with each image, of single forward passes."""
        given, asked = (
            np.concatenate([self.model(self.model.transform(Image.open(file))[None]).numpy() for file in files])
            for files in ([self.photos / path for path in paths], self.queries)
        )
        less = asked - np.array(self.comparison.mean)
        rows = self.comparison.rows(given, self.model.in_front)
        return less / np.linalg.norm(less, axis=1, keepdims=True) @ rows.T


know_heif()  # for files that Pillow itself writes and opens here


def photograph(file: Path, picture: np.ndarray, number: int) -> None:
    """A square, wide, tall or very wide photograph of the picture, of other colours where `number` is even."""
    file.parent.mkdir(parents=True, exist_ok=True)
    size = ((96, 96), (160, 96), (96, 250), (400, 96))[number % 4]
    image = Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC)
    image.save(file, quality=95, **({} if number % 2 else {"icc_profile": icc.rgb(icc.DISPLAY_P3)}))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A model with a last layer, behind which rows are linked by what stood in front."""
    data = tmp_path_factory.mktemp("run") / "data"
    images, choice = small.write_images(data / "images"), write_fused(data / "fused")
    photos, rng = data.parent / "My Dots", np.random.default_rng(5)
    pixels = arrays.open(images / TASK / "pixels.zarr")[:]
    for number, (path, image) in enumerate(zip(read_table(images / TASK)["path"].to_pylist(), pixels, strict=True)):
        photograph((photos / path).with_suffix((".png", ".heic", ".jpg")[number % 3]), image, number)
    shutil.rmtree(images / TASK)
    whole = PARAMS.model_copy(update={"protocol": "collection", "side": small.SIZE, "shape": "whole"})
    images_stage.main(photos, images / TASK, task=TASK, params=whole, lists=small.lists())
    model, generator = load(choice), torch.Generator().manual_seed(0)
    model.config = model.config.model_copy(update={"shape": "whole"})
    model.reduce(torch.randn(12, 24, generator=generator), torch.randn(12, generator=generator) / 9)
    small.write_model(model, data / "choice")
    model = load(data / "choice")
    small.write_features(data / "features", images)
    queries = [data.parent / f"{label}{suffix}" for label, suffix in enumerate((".png", ".heic", ".jpg"))]
    for label, file in enumerate(queries):
        photograph(file, small.draw(0, label, rng), label + 1)
    mean = tuple((0.4 * model(torch.from_numpy(pixels).movedim(3, 1)).mean(0)).tolist())
    comparison = Comparison(mean, Smoothing(0.9, 5))
    Comparisons({TASK: comparison, "bars": Comparison()}, Comparison(mean)).write(data / "choice")
    return World(data, load(data / "choice"), comparison, photos, queries)


@pytest.fixture(scope="module")
def made(world: World) -> dict[str, Path]:
    """The file of the stage `gallery`, and that of `embed` of the task's folder, whose name is another."""
    places = [world.data / place for place in (f"images/{TASK}", "choice", f"features/{TASK}", f"gallery/{TASK}")]
    gallery.main(*places, task=TASK, params=gallery.Params(smoothing=SETTINGS))
    own = world.data.parent / "e.parquet"
    (world.data.parent / "params.yaml").write_text(f"paths: {{{TASK}: '{world.photos}'}}")
    Collection.of(world.photos, world.choice, file=own)
    return {"gallery": places[-1] / "embeddings.parquet", "embed": own}


@pytest.mark.parametrize("door", ["gallery", "embed"])
def test_search__of_python(world: World, made: dict[str, Path], door: str) -> None:
    dots = Collection.open(made[door])
    assert dots.comparison == world.comparison
    expected = world.expected(dots.paths)
    np.testing.assert_allclose(dots.query(world.queries) @ dots.rows.T, expected, atol=MOST)
    for hits, cosines in zip(dots.search(world.queries, k=len(dots)), expected, strict=True):
        found = {hit.path: hit.score for hit in hits}
        np.testing.assert_allclose([found[path] for path in dots.paths], cosines, atol=MOST)


@pytest.mark.parametrize("door", ["gallery", "embed"])
def test_page(world: World, made: dict[str, Path], door: str) -> None:
    dots = Collection.open(made[door])
    page, every = Page([Side("model", "", dots)], 0.95), np.arange(len(dots))
    (searched,) = page.searched(None)
    asked = np.concatenate([page.vectors(Query(None, file.read_bytes(), None))[0] for file in world.queries])
    scores = asked @ searched.rows(every).T
    np.testing.assert_allclose(scores, world.expected(dots.paths), atol=MOST)
    for file, cosines in zip(world.queries, scores, strict=True):
        hits = page.search(Query(None, file.read_bytes(), None), None, "", 5)["sides"][0]
        np.testing.assert_allclose([cosines[hit["row"]] for hit in hits], np.sort(cosines)[:-6:-1], atol=MOST)


@pytest.mark.slow
@pytest.mark.parametrize("uint8", [True, False])
def test_exported_programs__search_the_rows_of_the_gallery(world: World, made: dict[str, Path], uint8: bool) -> None:
    dots = Collection.open(made["gallery"])
    rows, expected = dots.rows, world.expected(dots.paths)
    images = [world.model.transform(Image.open(file))[None] for file in world.queries]
    program = trace(world.model, uint8, Comparisons.read(world.choice).of(TASK).mean).module()
    with torch.inference_mode():
        asked = np.concatenate([program(image if uint8 else image / 255).numpy() for image in images])
    np.testing.assert_allclose(asked @ rows.T, expected, atol=MOST)


def test_report__the_nearest_of_its_queries_are_those_of_a_search(world: World, tmp_path: Path) -> None:
    """Of the images that are no queries a collection is made; the queries ask it as files, with equal R-Precision."""
    places = [world.data / place for place in ("images", "choice", "features")]
    how = evaluation.Params(whitened_dim=8)
    words = {"model": "recommended", "params": how, "smoothing": SETTINGS, "alike": {}, "lists": small.lists()}
    evaluation.main(*places, tmp_path / "evaluation", **words)
    table = pq.read_table(world.data / f"images/{TASK}/table.parquet").to_pydict()
    searched = tmp_path / TASK
    for path, is_query in zip(table["path"], table["is_query"], strict=True):
        if not is_query:
            (searched / path).parent.mkdir(parents=True, exist_ok=True)
            (searched / path).write_bytes((world.photos / path).read_bytes())
    dots = Collection.of(searched, world.choice, file=tmp_path / "e.parquet", task=TASK)
    rows = pq.read_table(tmp_path / "evaluation/smoothed_queries.parquet", filters=[("task", "=", TASK)]).to_pylist()
    assert len(rows) == sum(table["is_query"]) > 9
    label_of, precisions = dict(zip(table["path"], table["label"], strict=True)), []
    for row in rows:
        query = world.photos / table["path"][row["row"]]
        hits = {hit.path: hit.score for hit in dots.search(query, k=len(dots))[0]}
        named = [hits[table["path"][near]] for near in row["nearest"]]
        np.testing.assert_allclose(named, sorted(hits.values())[::-1][: len(named)], atol=MOST)
        right = [label_of[path] == table["label"][row["row"]] for path in hits]
        precisions.append(np.mean(right[: sum(right)]))
    measured = json.loads((tmp_path / "evaluation/smoothed.json").read_text())[TASK]
    assert measured["r_precision"] == pytest.approx(np.mean(precisions), abs=MOST)
