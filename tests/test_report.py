"""The report's files drawn from a small world in the formats that the other stages write."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from polygrain.findings.scores import METRICS
from polygrain.store import arrays
from polygrain.store.tables import read_csv
from tests.helpers.report_world import World, cells_of, lists_of, metrics_of, page_of, plain


@pytest.fixture
def world(tmp_path: Path) -> World:
    return plain(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the plain world."""
    return plain(tmp_path_factory.mktemp("plain")).draw()


def test_main__table_and_metrics_hold_the_same_numbers(folder):
    metrics, cells = metrics_of(folder), cells_of(folder)
    assert [model for model, form in cells if form == "whitened"] == [
        *("pixels", "encoder", "k2", "k4", "oracle", "average", "augmentation", "neighbour")
    ]
    for (model, form), row in cells.items():
        numbers = metrics[model + ("" if form == "as it is" else "_whitened")]
        for column, cell in zip(["mean", "one", "two"], row, strict=True):
            assert cell.split(" (")[0] == " / ".join(f"{numbers[column][metric]:.1f}" for metric in METRICS)
    rows = cells["neighbour", "as it is"], cells["encoder", "whitened"]
    gains = [[cell.rpartition(" ")[2] for cell in row] for row in rows]
    assert gains == [["(+2.5)", "(+6.0)", "(−1.0)"], ["(+1.0)"] * 3]


def test_main__two_runs_write_the_same_bytes(world):
    first, second = world.draw("first"), world.draw("second")
    names = sorted(path.relative_to(first).as_posix() for path in first.rglob("*") if path.is_file())
    assert names == [
        "curves.csv",
        "headline.json",
        "index.html",
        "metrics.json",
        "runs/images.parquet",
        "table.md",
        "training.csv",
    ]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_main__curves_and_training_are_long_tables(folder):
    curves, training = read_csv(folder / "curves.csv"), read_csv(folder / "training.csv")
    assert len(curves) == 3 * 7
    assert [row["k"] for row in curves if row["task"] == "one"] == ["", "", "2", "4", "", "", ""]
    assert float(next(row for row in curves if row["item"] == "two k4")["r_precision"]) == 55.0
    assert [row["stage"] for row in training if row["epoch"] == "2"] == [
        *("adaptor@k2", "adaptor@k4", "fusion@augmentation", "fusion@neighbour")
    ]


def test_main__a_baseline_alone_is_shown_without_comparison(tmp_path):
    baselines = ["pixels"]
    lists = lists_of(["one"], ["k2"], [], baselines)
    lists = lists.model_copy(update={"models": {name: lists.models[name] for name in baselines}})
    folder = World(tmp_path, lists, {name: {"one": 0.5} for name in baselines}, set()).draw()
    assert "Nothing was measured" not in page_of(folder).text and "oracle" not in metrics_of(folder)


def test_main__task_whose_queries_are_all_left_out(tmp_path):
    lists = lists_of(["one", "lonely"], ["k2"], ["average"], ["encoder"])
    world = World(tmp_path, lists, {model: {"one": 0.5} for model in ("encoder", "k2", "average")}, set())
    for file in sorted((tmp_path / "evaluation").glob("*/metrics.json")):
        lonely = dict.fromkeys(METRICS, math.nan) | {"queries": 0}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"lonely": lonely}))
    folder = world.draw()
    assert "lonely" not in (folder / "metrics.json").read_text()
    assert metrics_of(folder)["average"]["mean"]["r_precision"] == 50.0
    assert "no query has a relevant image: not evaluated" in page_of(folder).text


def test_main__counts_left_out_queries(world):
    for file in sorted((world.root / "evaluation").glob("*/[mw]*.json")):
        metrics = json.loads(file.read_text())
        metrics["two"]["queries"] = 9
        file.write_text(json.dumps(metrics))
    table = (world.draw() / "table.md").read_text(encoding="utf-8")
    assert "| one | 24 | 12 | 12 | 2 | 2 | 12 | 0 | 1 | 4 |" in table
    assert "| two | 24 | 12 | 12 | 2 | 2 | 9 | 3 | 1 | 4 |" in table


def test_main__names_what_does_not_fit_and_leaves_nothing(world):
    shutil.rmtree(world.root / "pseudo_labels/k2/labels.zarr")
    arrays.write(world.root / "pseudo_labels/k2/labels.zarr", np.zeros(5, np.int64))
    with pytest.raises(ValueError, match="labels 5 images, the tables hold 24"):
        world.draw()
    (world.root / "choice/choice.json").write_text('{"why": []}')
    with pytest.raises(ValueError, match=r"choice\.json is missing or damaged"):
        world.draw()
    assert not (world.root / "report").exists()
