"""The report drawn from a small world in the formats that the other stages write."""

import csv
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages import report
from stages.core import command, store
from stages.core.collection import TABLE

PARAMS = report.Params(gains=2, thumbnail=16, rejected=3)
CLASSES, IMAGES = 4, 6
FUSIONS = {"average": "adaptor", "augmentation": "images", "neighbour": "knn_graph"}


GIVEN = ("root", "seed", "tasks", "granularities", "fusions", "models")


def lists_of(tasks: list[str], granularities: list[str], fusions: list[str], baselines: list[str]) -> command.Lists:
    adaptors = {name: f"adaptor/{name}" for name in granularities}
    known = {"pixels": "images", "encoder": "encoder"}
    return command.Lists(
        root=".",
        seed=0,
        tasks={task: {"source": "folder", "path": task} for task in tasks},
        granularities=adaptors,
        fusions={name: FUSIONS[name] for name in fusions},
        **{name: {} for name in command.Lists.model_fields if name not in GIVEN},
        # A YAML merge puts the adaptors first; the report must not depend on that.
        models=adaptors | {name: known[name] for name in baselines} | {name: f"fusion/{name}" for name in fusions},
    )


def write_task(folder: Path, classes: list[str], labelled: bool, rejected: list[tuple[str, str]]) -> None:
    rng = np.random.default_rng(0)
    names = [name for name in classes for _ in range(IMAGES)]
    labels = [classes.index(name) if labelled else -1 for name in names]
    train = [not labelled or label < len(classes) // 2 for label in labels]
    folder.mkdir(parents=True)
    store.write(folder / "pixels.zarr", rng.integers(0, 256, (len(names), 20, 20, 3), dtype=np.uint8))
    columns = [
        [f"{name}/{i}.jpg" for i, name in enumerate(names)],
        [folder.name] * len(names),
        labels,
        names if labelled else [""] * len(names),
        ["train" if is_train else "test" for is_train in train],
        *[[20] * len(names)] * 3,
        [f"{i:064x}" for i in range(len(names))],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, TABLE, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=TABLE), folder / "table.parquet")
    with (folder / "rejected.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("path", "reason"), *rejected])


def write_model(folder: Path, metrics: dict, whitened: dict, queries: list[dict]) -> None:
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "whitened.json").write_text(json.dumps(whitened))
    fields = [("task", pa.string()), ("row", pa.int64()), ("r_precision", pa.float32())]
    schema = pa.schema(
        [*fields, ("map_at_r", pa.float32()), ("recall_at_1", pa.float32()), ("nearest", pa.list_(pa.int64()))]
    )
    pq.write_table(pa.Table.from_pylist(queries, schema), folder / "queries.parquet")


def entry(value: float, queries: int = 12) -> dict:
    return {"r_precision": value, "map_at_r": value * 0.8, "recall_at_1": min(1.0, value * 1.5), "queries": queries}


def queries_of(task: str, seed: int) -> list[dict]:
    """One record per test image with five other test images of the task, at random."""
    rng, rows = np.random.default_rng(seed), range(CLASSES // 2 * IMAGES, CLASSES * IMAGES)
    records = []
    for row in rows:
        nearest = rng.permutation([other for other in rows if other != row])[:5].tolist()
        value = float(np.round(rng.random(), 2))
        records.append({"task": task, "row": row, "nearest": nearest} | dict.fromkeys(report.scores.METRICS, value))
    return records


class World:
    """A data folder; `values[model][task]` are R-Precisions as it is, whitened ones lie 0.01 higher."""

    def __init__(
        self, root: Path, lists: command.Lists, values: dict[str, dict[str, float]], unlabelled: set[str]
    ) -> None:
        self.root, self.lists = root, lists
        rejected = [(f"{i}.jpg", "truncated") for i in range(4)] + [("copy.jpg", "duplicate of first.jpg")]
        for task in lists.tasks:
            classes = ["a", "b", "c", "<script>alert(1)</script>"]
            write_task(root / "images" / task, classes, task not in unlabelled, rejected)
        for seed, model in enumerate(lists.models):
            metrics = {task: entry(value) for task, value in values.get(model, {}).items()}
            whitened = {task: entry(value + 0.01) for task, value in values.get(model, {}).items()}
            queries = [record for task in metrics for record in queries_of(task, seed)]
            write_model(root / "evaluation" / model, metrics, whitened, queries)
        for name in lists.granularities:
            self.write_adaptor(name)
        for name in lists.fusions:
            self.write_fusion(name)

    def write_adaptor(self, name: str) -> None:
        rows = sum(len(pq.read_table(self.root / "images" / t / "table.parquet", filters=[("split", "=", "train")]))
                   for t in self.lists.tasks)  # fmt: skip
        (self.root / "pseudo_labels" / name).mkdir(parents=True)
        store.write(self.root / "pseudo_labels" / name / "labels.zarr", np.arange(rows) % int(name[1:]))
        (self.root / "adaptor" / name).mkdir(parents=True)
        (self.root / "adaptor" / name / "history.csv").write_text("epoch,loss,accuracy\n1,2.5,0.1\n2,2.25,0.4\n")

    def write_fusion(self, name: str) -> None:
        (self.root / "fusion" / name).mkdir(parents=True)
        epochs = "" if name == "average" else "1,30.5\n2,20.25\n"
        (self.root / "fusion" / name / "history.csv").write_text("epoch,loss\n" + epochs)
        count = len(self.lists.granularities)
        if name != "average" and count > 1:
            weights = [
                {"task": task, "layer": layer, "adaptor": adaptor, "weight": 1 / count + 0.1 * (i - (count - 1) / 2)}
                for task in self.lists.tasks
                for layer in range(3)
                for i, adaptor in enumerate(self.lists.granularities)
            ]
            pq.write_table(pa.Table.from_pylist(weights), self.root / "evaluation" / name / "attention.parquet")

    def draw(self, output: str = "report") -> Path:
        stages = ("images", "pseudo_labels", "adaptor", "fusion", "evaluation")
        report.main(*[self.root / stage for stage in stages], self.root / output, params=PARAMS, lists=self.lists)
        return self.root / output


VALUES = {
    "pixels": {"one": 0.2, "two": 0.3},
    "encoder": {"one": 0.4, "two": 0.5},
    "k2": {"one": 0.45, "two": 0.48},
    "k4": {"one": 0.41, "two": 0.55},
    "average": {"one": 0.44, "two": 0.52},
    "augmentation": {"one": 0.43, "two": 0.51},
    "neighbour": {"one": 0.46, "two": 0.49},
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["pixels", "encoder"])
    return World(tmp_path, lists, VALUES, set())


class Page(HTMLParser):
    """Addresses, tags and visible text of a page; fails on a tag that is closed without being open."""

    VOID = frozenset({"meta", "link", "img", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.images: list[dict] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "action")]
        if tag in ("td", "th", "p", "small", "h2"):
            self.text += " "
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += text


def page_of(folder: Path) -> Page:
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    page.text = " ".join(page.text.split())
    return page


def cells_of(markdown: str) -> dict[tuple[str, str], list[str]]:
    """{(model, form): the cells of its row} of the results table."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines() if line.startswith("|")
    ]
    return {(row[0].split()[0], row[1]): row[2:] for row in rows if row[1] in ("as it is", "whitened")}


def test_main__page_needs_nothing_from_outside(world):
    text = (world.draw() / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://|url\(|@import|//[a-z]", text)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert "script" not in page.tags
    assert sum(address.startswith("data:image/jpeg") for address in page.addresses) == len(page.images) > 20


def test_main__names_are_escaped(world):
    folder = world.draw()
    assert "<script>" not in (folder / "index.html").read_text(encoding="utf-8")
    assert "<script>alert(1)</script>" in page_of(folder).text


def test_main__every_picture_and_drawing_has_a_text(world):
    text = (world.draw() / "index.html").read_text(encoding="utf-8")
    assert all(image.get("alt") for image in Page(text).images)
    assert all('aria-label="' in tag and 'role="img"' in tag for tag in re.findall(r"<svg[^>]*>", text))


def test_main__table_and_metrics_hold_the_same_numbers(world):
    folder = world.draw()
    metrics = json.loads((folder / "metrics.json").read_text())
    cells = cells_of((folder / "table.md").read_text(encoding="utf-8"))
    assert [model for model, form in cells if form == "whitened"] == [
        *("pixels", "encoder", "k2", "k4", "oracle", "average", "augmentation", "neighbour")
    ]
    for (model, form), row in cells.items():
        numbers = metrics[model + ("" if form == "as it is" else "_whitened")]
        for column, cell in zip(["mean", "one", "two"], row, strict=True):
            expected = " / ".join(f"{numbers[column][metric]:.1f}" for metric in report.scores.METRICS)
            assert cell.split(" (")[0] == expected


def test_main__metrics_are_percent_and_mean_is_over_tasks(world):
    metrics = json.loads((world.draw() / "metrics.json").read_text())
    assert metrics["neighbour"]["one"] == {"r_precision": 46.0, "map_at_r": 36.8, "recall_at_1": 69.0}
    assert metrics["neighbour"]["mean"]["r_precision"] == 47.5
    assert metrics["neighbour_whitened"]["mean"]["r_precision"] == 48.5


def test_main__oracle_takes_the_best_adaptor_of_each_task(world):
    folder = world.draw()
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["oracle"]["one"] == metrics["k2"]["one"] and metrics["oracle"]["two"] == metrics["k4"]["two"]
    assert metrics["oracle"]["mean"]["r_precision"] == 50.0
    assert "not comparable" in page_of(folder).text


def test_main__summary_tells_gain_fall_and_whitening(world):
    text = page_of(world.draw()).text
    assert "+2.5 points" in text
    assert "rises from 45.0 to 47.5 %" in text
    assert "1 of 2 tasks falls: two −1.0" in text
    assert "Whitening alone gives +1.0" in text


def test_main__differences_are_signed(world):
    cells = cells_of((world.draw() / "table.md").read_text(encoding="utf-8"))
    assert [cell.rpartition(" ")[2] for cell in cells["neighbour", "as it is"]] == ["(+2.5)", "(+6.0)", "(−1.0)"]
    assert [cell.rpartition(" ")[2] for cell in cells["encoder", "whitened"]] == ["(+1.0)"] * 3


def test_main__star_marks_the_best_and_never_the_oracle(world):
    page = (world.draw() / "index.html").read_text(encoding="utf-8")
    marked = re.findall(r'<span class="rp best">([0-9.]+)</span>', page)
    assert marked == ["49.0", "56.0", "49.0", "47.0"]


def test_branch_pages__lead_to_the_pages_of_every_item(world):
    assert 'id="branches"' not in (world.draw() / "index.html").read_text()
    lists = lists_of(["birds"], ["k4"], ["average"], ["encoder"])
    lists = lists.model_copy(update={"gsp": {"collage": "a"}, "tll": {"own": None, "faces": None}})
    addresses = [page["address"] for page in report.branch_pages(lists)]
    pages = ("gsp_report/collage", "tll_report/own", "tll_report/faces")
    assert addresses == [f"../{page}/index.html" for page in pages]


def test_main__two_runs_write_the_same_bytes(world):
    first, second = world.draw("first"), world.draw("second")
    names = sorted(path.name for path in first.iterdir())
    assert names == ["curves.csv", "index.html", "metrics.json", "table.md", "training.csv"]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_main__lists_rejected_files_up_to_the_limit(world):
    text = page_of(world.draw()).text
    assert "10 files left out, the first 3 listed" in text
    assert [f"{i}.jpg truncated" in text for i in range(4)] == [True] * 3 + [False]


def test_main__curves_and_training_are_long_tables(world):
    folder = world.draw()
    with (folder / "curves.csv").open(newline="") as file:
        curves = list(csv.DictReader(file))
    assert len(curves) == 3 * 7
    assert [row["k"] for row in curves if row["task"] == "one"] == ["", "", "2", "4", "", "", ""]
    assert float(next(row for row in curves if row["item"] == "two k4")["r_precision"]) == 55.0
    with (folder / "training.csv").open(newline="") as file:
        training = list(csv.DictReader(file))
    assert [row["stage"] for row in training if row["epoch"] == "2"] == [
        *("adaptor@k2", "adaptor@k4", "fusion@augmentation", "fusion@neighbour")
    ]


def test_main__nothing_evaluated_is_said(tmp_path):
    lists = lists_of(["flat"], ["k2", "k4"], list(FUSIONS), ["pixels", "encoder"])
    folder = World(tmp_path, lists, {}, {"flat"}).draw()
    page = page_of(folder)
    assert "Nothing was evaluated" in page.text and "no labels: trained on, not evaluated" in page.text
    assert "Training" in page.text and "svg" in page.tags
    assert json.loads((folder / "metrics.json").read_text()) == {}
    assert "Nothing was evaluated" in (folder / "table.md").read_text()


def test_main__one_task_and_one_adaptor(tmp_path):
    lists = lists_of(["one"], ["k2"], [], ["encoder"])
    folder = World(tmp_path, lists, {"encoder": {"one": 0.5}, "k2": {"one": 0.5}}, set()).draw()
    page = page_of(folder)
    assert "R-Precision on one stays from 50.0 to 50.0 %" in page.text.replace("  ", " ")
    assert "±0.0" in page.text and "attention" not in page.addresses


@pytest.mark.parametrize("baselines", [["pixels"], ["pixels", "encoder"]])
def test_main__only_baselines_are_shown_without_comparison(tmp_path, baselines):
    lists = lists_of(["one"], ["k2"], [], baselines)
    lists = lists.model_copy(update={"models": {name: lists.models[name] for name in baselines}})
    folder = World(tmp_path, lists, {name: {"one": 0.5} for name in baselines}, set()).draw()
    assert "Nothing to compare" in page_of(folder).text
    assert "oracle" not in json.loads((folder / "metrics.json").read_text())


def test_main__task_whose_queries_are_all_left_out(tmp_path):
    lists = lists_of(["one", "lonely"], ["k2"], ["average"], ["encoder"])
    values = {model: {"one": 0.5} for model in ("encoder", "k2", "average")}
    world = World(tmp_path, lists, values, set())
    for file in sorted((tmp_path / "evaluation").glob("*/metrics.json")):
        metrics = json.loads(file.read_text())
        file.write_text(
            json.dumps(metrics | {"lonely": dict.fromkeys(report.scores.METRICS, math.nan) | {"queries": 0}})
        )
    folder = world.draw()
    assert "lonely" not in (folder / "metrics.json").read_text()
    assert json.loads((folder / "metrics.json").read_text())["average"]["mean"]["r_precision"] == 50.0
    assert "no query has a relevant image: not evaluated" in page_of(folder).text


def test_main__counts_left_out_queries(world):
    file = world.root / "evaluation" / "encoder" / "metrics.json"
    for model in world.lists.models:
        for name in ("metrics.json", "whitened.json"):
            file = world.root / "evaluation" / model / name
            metrics = json.loads(file.read_text())
            metrics["two"]["queries"] = 9
            file.write_text(json.dumps(metrics))
    table = (world.draw() / "table.md").read_text(encoding="utf-8")
    assert "| one | 24 | 12 | 12 | 2 | 2 | 12 | 0 | 1 | 4 |" in table
    assert "| two | 24 | 12 | 12 | 2 | 2 | 9 | 3 | 1 | 4 |" in table


def test_main__damaged_metrics_are_named(world):
    (world.root / "evaluation" / "k2" / "whitened.json").write_text('{"one": {"r_precision": 1}}')
    with pytest.raises(ValueError, match=r"k2/whitened\.json is missing or holds no metrics"):
        world.draw()
    assert not (world.root / "report").exists()


def test_main__pseudo_labels_of_other_images_are_refused(world):
    folder = world.root / "pseudo_labels" / "k2"
    store.write(folder / "again" / "labels.zarr", np.zeros(5, np.int64))
    (folder / "again" / "labels.zarr").rename(folder / "new.zarr")
    (folder / "labels.zarr").rename(folder / "old.zarr")
    (folder / "new.zarr").rename(folder / "labels.zarr")
    with pytest.raises(ValueError, match="labels 5 images, the tables hold 24"):
        world.draw()
