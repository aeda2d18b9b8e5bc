"""The comparisons of a model's own tasks, as its folder says it."""

import json
from pathlib import Path

import pytest

from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.comparisons import FILE, Comparisons
from polygrain.collection.postprocessing.diffusion import Smoothing

SHOES = Comparison((0.1, 0.2, 0.3, 0.4), Smoothing(0.9, 10), 6)
MODEL = Comparisons({"shoes": SHOES, "bags": Comparison((0.4, 0.1, 0.0, 0.0))}, Comparison((0.2, 0.2, 0.1, 0.1)))


def test_read__gives_what_was_written(tmp_path: Path) -> None:
    MODEL.write(tmp_path)
    assert Comparisons.read(tmp_path) == MODEL
    (tmp_path / FILE).unlink()
    assert Comparisons.read(tmp_path) == Comparisons.read(None) == Comparisons({}, Comparison())


@pytest.mark.parametrize(
    "change", [None, [], {"tasks": []}, {"tasks": {"shoes": 5}}, {"default": {"mean": ["a"]}}, {"default": None}]
)
def test_read__names_a_damaged_file_and_what_to_do(tmp_path: Path, change: object) -> None:
    MODEL.write(tmp_path)
    values = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(values | change if isinstance(change, dict) else change))
    with pytest.raises(ValueError, match=f"{FILE} is missing or damaged .*whole folder"):
        Comparisons.read(tmp_path)


def test_of__a_task_that_the_model_does_not_know_is_named() -> None:
    assert MODEL.of("shoes") == SHOES and MODEL.of(None) == MODEL.default
    with pytest.raises(ValueError, match="'hats'; it knows shoes, bags"):
        MODEL.of("hats")
