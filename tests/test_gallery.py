from pathlib import Path

import numpy as np
import pytest

from polygrain import Collection
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.collection.postprocessing.strength import SETTINGS
from polygrain.encoder.extract import embed
from polygrain.encoder.kept import digest
from polygrain.encoder.model import load
from polygrain.store.image_table import open_pixels
from stages.gallery import Params, main
from tests.helpers.small import run_features, write_encoder, write_images

PARAMS = Params(smoothing=SETTINGS)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    write_images(tmp_path / "images"), write_encoder(tmp_path / "choice")
    run_features(tmp_path / "features", tmp_path / "images", tmp_path / "choice")
    return tmp_path


def run(world: Path, output: Path, comparison: Comparison) -> str:
    Comparisons({"dots": comparison}).write(world / "choice")
    folders = world / "images/dots", world / "choice", world / "features/dots"
    return main(*folders, output, task="dots", params=PARAMS)


def test_main__rows_are_as_the_model_compares(world: Path, monkeypatch) -> None:
    monkeypatch.chdir(world)
    mean = np.random.default_rng(0).normal(size=24) / 20
    comparison = Comparison(tuple(mean.tolist()), Smoothing(0.9, 5), alike=8)
    message = run(world, Path("data/gallery/dots"), comparison)
    assert message == "48 images, smoothed by 5 neighbours, strength 0.9"
    folder, name, rows = world / "data/gallery/dots", digest(world / "choice"), np.arange(48)
    made = Collection.open(folder / "embeddings.parquet")
    model = load(world / "choice")
    vectors = embed(model, open_pixels(world / "images", ["dots"]), rows, 16, "float32", "test")
    np.testing.assert_allclose(made.plain, comparison.query(vectors), atol=1e-3)
    np.testing.assert_allclose(made.rows, comparison.rows(vectors), atol=2e-3)
    assert made.paths[9] == "1/1.png" and made.root.resolve() == world / "images/dots"
    with pytest.raises(ValueError, match="`polygrain run` brings it up to date"):
        made.update()
    assert made.comparison == comparison and made.facts.task == "dots" and made.facts.model == name
    for path in ("my/dots", "/elsewhere"):  # as each clone has it, now
        (world / "params.yaml").write_text(f"paths: {{dots: {path}}}\n")
        assert Collection.open("data/gallery/dots/embeddings.parquet").root.absolute() == world / path


def test_main__unsmoothed_images_are_plain(world: Path) -> None:
    assert "not smoothed" in run(world, world / "out", Comparison())
    plain = Collection.open(world / "out/embeddings.parquet")
    assert len(plain) == 48 and plain.comparison.is_plain and not plain.is_smoothed
