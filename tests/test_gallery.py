import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from polygrain.app.gallery import read, read_of
from polygrain.encoder.digest import digest
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.retrieval.smoothing import Smoothing, smooth_by
from polygrain.retrieval.smoothing_choice import SETTINGS, Chosen
from polygrain.store import arrays
from polygrain.store.collection import open_pixels
from stages import evaluation, gallery
from stages.gallery import Params, main
from tests.helpers.small import lists, run_features, write_encoder, write_images

PARAMS = Params(smoothing=SETTINGS)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_images(folder / "images"), write_encoder(folder / "choice")
    run_features(folder / "features", folder / "images", folder / "choice")
    return folder


def run(world: Path, output: Path, source: str = "my/dots", images: str = "images") -> str:
    folders = world / images / "dots", world / "choice", world / "features/dots"
    return main(*folders, output, task="dots", source=source, params=PARAMS, alike={})


def test_main__rows_graph_and_record_fit_together(world: Path, tmp_path: Path, monkeypatch) -> None:
    chosen = Chosen(Smoothing(0.9, 5, 2), "as the test says", [{"strength": 0.9, "mixed": 2, "agreement": 1.0}])
    monkeypatch.setattr(gallery, "choose", lambda *_, **__: chosen)
    monkeypatch.chdir(tmp_path)
    message = run(world, Path("data/gallery/dots"))
    assert message.startswith("48 images, smoothed by 5 neighbours")
    folder, name, rows = tmp_path / "data/gallery/dots", digest(world / "choice"), np.arange(48)
    plain = read_of(folder / "embeddings.parquet", name, world / "choice", smooth=False)
    smoothed = read(folder / "embeddings.parquet")
    pixels = open_pixels(world / "images", ["dots"])
    expected = embed(load(world / "choice"), pixels, rows, 16, "float32", "test")
    np.testing.assert_allclose(plain.vectors(rows), expected, atol=1e-3)
    assert plain.paths[9] == "1/1.png" and plain.root.resolve() == tmp_path / "my/dots"
    graph = arrays.open(folder / "neighbours.zarr")[:]
    assert graph.shape == (48, 5)
    np.testing.assert_allclose(smoothed.vectors(rows), smooth_by(expected, graph, chosen.smoothing), atol=1e-3)
    assert smoothed.smoothing == chosen.smoothing
    record = json.loads((folder / "gallery.json").read_text())
    assert record == {
        "model": name,
        "images": 48,
        "axes": None,
        "smoothing": {"strength": 0.9, "neighbours": 5, "mixed": 2, "power": 3.0, "whitened": False},
        "why": "as the test says",
        "agreement": chosen.agreement,
    }


def test_main__an_unseen_task_of_a_model_with_grains_is_linked_as_those_with_one(world, tmp_path, monkeypatch):
    model, asked = load(world / "choice"), {}
    model.config = model.config.model_copy(update={"reduced": 24, "grains": {"bars": 4}})
    model.reduction = nn.Linear(24, 24)
    monkeypatch.setattr(gallery, "load", lambda _: model)
    monkeypatch.setattr(gallery, "choose", lambda *_, **words: asked.update(words) or Chosen(Smoothing(0.0, 5), "", []))
    run(world, tmp_path / "out")
    assert asked["is_whitened"] is False


def test_main__is_smoothed_as_the_evaluation_measured(world: Path, tmp_path: Path) -> None:
    """36 of 48 images are searched there; so many more here make no smoothing that nothing measured."""
    settings = SETTINGS.model_copy(update={"fewest": 37, "neighbours": 4, "depth": 5})
    paths, words = (world / "images/dots", world / "choice", world / "features/dots"), {"task": "dots", "source": "x"}
    main(*paths, tmp_path / "few", params=Params(smoothing=settings), alike={}, **words)
    assert read(tmp_path / "few/embeddings.parquet").smoothing is None
    settings = settings.model_copy(update={"fewest": 36})
    main(*paths, tmp_path / "out", params=Params(smoothing=settings), alike={}, **words)
    models = evaluation.Params(whitened_dim=8, smoothed=["chosen"], random_draws=0)
    folders = world / "images", world / "choice", world / "features", tmp_path / "evaluation"
    evaluation.main(*folders, model="chosen", params=models, smoothing=settings, alike={}, lists=lists())
    measured = json.loads((tmp_path / "evaluation/smoothing.json").read_text())["dots"]
    record = json.loads((tmp_path / "out/gallery.json").read_text())
    assert {name: record[name] for name in ("smoothing", "why", "agreement")} == measured
    assert len(read(tmp_path / "out/embeddings.parquet")) == 48


def test_main__few_images_stay_as_they_are(world: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "images", classes=1, per_class=3, labelled=False)
    (tmp_path / "choice").symlink_to(world / "choice")
    run_features(tmp_path / "features", tmp_path / "images", tmp_path / "choice")
    assert "too few" in run(tmp_path, tmp_path / "out", source="/elsewhere")
    plain = read_of(tmp_path / "out/embeddings.parquet", digest(world / "choice"), Path("choice"))
    assert len(plain) == 3 and plain.smoothing is None and plain.root == Path("/elsewhere")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"embeddings.parquet", "gallery.json"}
