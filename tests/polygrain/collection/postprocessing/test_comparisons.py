"""How a model's own collections are compared, as its folder says it."""

import json
from pathlib import Path

import numpy as np
import pytest

from polygrain.collection.postprocessing.comparison import FEWEST, Comparison, choose
from polygrain.collection.postprocessing.comparisons import FILE, Comparisons, read
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.compute.vectors import unit_rows

SHOES = Comparison((0.1, 0.2, 0.3, 0.4), Smoothing(0.9, 10), 6)
MODEL = Comparisons({"shoes": SHOES, "bags": Comparison((0.4, 0.1, 0.0, 0.0))}, Comparison((0.2, 0.2, 0.1, 0.1)))


def vectors(count: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32) + 1)


def test_read__gives_what_was_written(tmp_path: Path) -> None:
    MODEL.write(tmp_path)
    assert read(tmp_path) == MODEL
    (tmp_path / FILE).unlink()
    assert read(tmp_path) == Comparisons({}, Comparison())


@pytest.mark.parametrize(
    "change", [None, [], {"tasks": []}, {"tasks": {"shoes": 5}}, {"default": {"mean": ["a"]}}, {"default": None}]
)
def test_read__names_a_damaged_file_and_what_to_do(tmp_path: Path, change: object) -> None:
    MODEL.write(tmp_path)
    values = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(values | change if isinstance(change, dict) else change))
    with pytest.raises(ValueError, match=f"{FILE} is missing or damaged .*whole folder"):
        read(tmp_path)


def test_of__a_task_that_the_model_does_not_know_is_named() -> None:
    assert MODEL.of("shoes") == SHOES and MODEL.of(None) == MODEL.default
    with pytest.raises(ValueError, match="'hats'; it knows shoes, bags"):
        MODEL.of("hats")


@pytest.mark.parametrize("alike", [None, 6])
@pytest.mark.parametrize("count", [3, FEWEST])
def test_choose__a_folder_with_the_name_of_a_task_is_compared_as_the_task(count: int, alike: int | None) -> None:
    comparison, why = MODEL.choose("shoes", vectors(count), alike)
    assert comparison == SHOES and "shoes" in why


@pytest.mark.parametrize(("count", "is_own"), [(1, False), (FEWEST - 1, False), (FEWEST, True), (3 * FEWEST, True)])
def test_choose__other_images_have_their_own_mean_unless_they_are_few(count: int, is_own: bool) -> None:
    rows = vectors(count)
    comparison, _ = MODEL.choose("hats", rows, 20)
    expected = [float(np.mean(column)) for column in rows.T] if is_own else MODEL.default.mean
    np.testing.assert_allclose(comparison.mean, expected, atol=1e-6)
    assert comparison.alike == 20 and comparison.smoothing == choose(rows, 20)[0].smoothing


def test_choose__said_otherwise_the_task_keeps_its_mean_and_is_smoothed_anew() -> None:
    rows = vectors(3 * FEWEST)
    comparison, _ = MODEL.choose("shoes", rows, 40)
    assert comparison == choose(rows, 40, mean=SHOES.mean)[0]
