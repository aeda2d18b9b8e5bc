import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.config.lists import Lists
from polygrain.grappa.report import published
from stages import mrt_report
from tests.helpers import driven
from tests.helpers.page import assert_loads_nothing
from tests.helpers.small import lists, write_images

PARAMS = mrt_report.Params(attention_of="neighbour")


def write_evaluation(folder: Path, rows: dict[str, dict[str, tuple[float, float]]]) -> Path:
    for model, tasks in rows.items():
        (folder / model).mkdir(parents=True)
        values = {
            task: {"r_precision": r / 100, "map_at_r": m / 100, "recall_at_1": 0.5, "queries": 9}
            for task, (r, m) in tasks.items()
        }
        for name in ("metrics", "whitened"):
            (folder / model / f"{name}.json").write_text(json.dumps(values))
    return folder


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path, Lists]:
    """`cub`, trained, and `dtd`, unseen; where the paper has a row, ours repeats it."""
    images = write_images(tmp_path / "images")
    (images / "dots").rename(images / "cub")
    (images / "bars").rename(images / "dtd")
    printed = published.read()
    models = {"encoder": "encoder", "k4": "adaptor/k4", "k8": "adaptor/k8", "neighbour": "fusion/neighbour"}
    supervised = {"cub-one": {"on": "cub", "how": "one"}, "all-full": {"on": "all", "how": "full"}}
    models |= {name: f"supervised_model/{name}" for name in supervised}
    tasks = {"cub": {"source": "cub"}, "dtd": {"source": "dtd", "unseen": True}}
    items = lists(tasks=tasks, supervised_models=supervised, models=models, mrt=["tables"])
    rows = {
        model: {
            "cub": tuple(printed[2].get(model, printed[3]["cub-one"])["cub"].values()),
            "dtd": tuple(printed[4].get(model, printed[4]["encoder"])["dtd"].values()),
        }
        for model in models
        if model not in ("k4", "k8")
    }
    rows |= {"k4": {"cub": (50.0, 40.0), "dtd": (30.0, 20.0)}, "k8": {"cub": (40.0, 30.0), "dtd": (31.0, 21.0)}}
    evaluation = write_evaluation(tmp_path / "evaluation", rows)
    weights = [
        {"task": task, "layer": layer, "adaptor": name, "weight": weight if name == "k4" else 1 - weight}
        for task, weight in (("cub", 0.25), ("dtd", 0.75))
        for layer in (0, 1)
        for name in ("k4", "k8")
    ]
    pq.write_table(pa.Table.from_pylist(weights), evaluation / "neighbour/attention.parquet")
    return images, evaluation, items


def run(world, output: Path) -> dict:
    mrt_report.main(*world[:2], output, params=PARAMS, lists=world[2])
    return json.loads((output / "metrics.json").read_text())


def test_main__every_table_with_ours_published_and_difference(world, tmp_path: Path) -> None:
    metrics = run(world, tmp_path / "out")
    assert metrics["table 2"]["encoder"]["cub"]["difference_r_precision"] == 0.0
    assert metrics["table 2"]["neighbour"]["cub"]["r_precision"] == 35.1
    assert metrics["table 2"]["oracle"]["cub"]["r_precision"] == 50.0
    assert metrics["table 2"]["encoder_whitened"]["cub"]["published_r_precision"] is None
    assert metrics["table 3"]["encoder"]["cub"]["difference_r_precision"] == 0.0
    assert metrics["table 5"]["neighbour"]["cub"]["difference_map_at_r"] == 0.0
    assert metrics["table 3"]["cub-one"]["cub"]["difference_map_at_r"] == 0.0
    assert metrics["table 4"]["all-full"]["dtd"]["difference_r_precision"] == 0.0
    assert "dtd" not in metrics["table 2"]["encoder"] and "cub" not in metrics["table 4"]["encoder"]
    assert metrics["table 5"]["supervised"]["cub"]["r_precision"] is None
    assert metrics["encoder_repeats_its_row"] is False  # five tasks are missing
    run(world, tmp_path / "again")
    for file in ("index.html", "table.md", "metrics.json"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    page, table = (tmp_path / "out" / "index.html").read_text(), (tmp_path / "out" / "table.md").read_text()
    for number in range(1, 6):
        assert f"Table {number}" in page and f"## Table {number}" in table
    assert_loads_nothing(page)
    assert "Not measured: aircraft, cars, flowers, food101, products" in page
    assert "35.1 (35.1, ±0.0)" in table and "50.0 (–, –)" in table
    assert "| Neighbour fusion less encoder | +1.5 (+1.5);" in table and "+1.5" in page
    assert "| all that train | 3 (100, −97) | 24 (5,864, −5,840) |" in table and "all that train" in page


@driven.needed
def test_main__fits_a_phone(world, tmp_path: Path) -> None:
    run(world, tmp_path / "out")
    assert driven.out_of_a_phone(tmp_path / "out/index.html") == []


def test_main__a_task_of_other_images_is_compared_with_nothing(world, tmp_path: Path) -> None:
    images, evaluation, items = world
    tasks = {"cub": {"source": "folder"}, "dtd": {"source": "dtd", "unseen": True}}
    metrics = run((images, evaluation, lists(**items.model_dump() | {"tasks": tasks})), tmp_path / "out")
    for number in (2, 3, 5):
        cells = [row["cub"] for row in metrics[f"table {number}"].values()]
        assert cells and all(cell["published_r_precision"] is None for cell in cells)
    assert metrics["table 2"]["neighbour"]["cub"]["r_precision"] == 35.1
    assert metrics["table 4"]["encoder"]["dtd"]["difference_r_precision"] == 0.0


def test_main__figure_4_has_the_published_points_and_the_mean_over_seen_tasks(world, tmp_path: Path) -> None:
    images, evaluation, items = world
    adaptors = {name: f"adaptor/{name}" for name in ("k256", "k1024")}
    granularities = {name: f"pseudo_labels/{name}" for name in adaptors}
    models = {"encoder": "encoder"} | adaptors
    changed = {"granularities": granularities, "adaptors": adaptors, "models": models}
    for old, new in (("k4", "k256"), ("k8", "k1024")):
        (evaluation / old).rename(evaluation / new)
    run((images, evaluation, lists(**items.model_dump() | changed)), tmp_path / "out")
    page = (tmp_path / "out/index.html").read_text()
    assert "cub: k256 50.0, k1024 40.0, encoder 33.6, published k256 33.3, published k1024 34.9" in page
    assert "R-Precision in percent, dtd" not in page  # an unseen task, in no mean
    assert "svg .dot.s-published" in page


def test_count_rows__table_1(world) -> None:
    cub, total, dtd = mrt_report.count_rows(world[0], world[2])
    assert cub["ours"] == {"train_classes": 3, "train_images": 24, "test_classes": 3, "test_images": 24}
    published = {"train_classes": 100, "train_images": 5864, "test_classes": 100, "test_images": 5924}
    assert cub["published"] == published and cub["difference"]["train_images"] == 24 - 5864
    assert all(total[key] == cub[key] for key in ("ours", "published", "difference"))
    assert dtd["unseen"] and dtd["published"]["test_images"] == 5640


def test_granularity_use__favourite_and_typical_k(world) -> None:
    cub, dtd = mrt_report.granularity_use(world[1], "neighbour", {"k4": 4, "k8": 8})
    assert (cub["favourite"], dtd["favourite"]) == ("k8", "k4") and cub["last"] == "k8"
    assert cub["weights"] == pytest.approx({"k4": 0.25, "k8": 0.75})
    assert cub["typical"] == round(2 ** (0.25 * 2 + 0.75 * 3)) == 7
    assert mrt_report.granularity_use(world[1], "average", {"k4": 4}) == []
