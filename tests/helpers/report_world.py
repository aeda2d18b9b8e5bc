"""A small world for the report, in the formats that the other stages write."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.config.lists import Lists
from polygrain.findings.chosen import COLUMNS
from polygrain.findings.scores import METRICS
from polygrain.report.rows import KNOWN
from polygrain.store import arrays
from polygrain.store.image_table import TABLE
from stages import report
from tests.helpers.page import Page

PARAMS = report.Params(gains=2, thumbnail=16, better="--encoder larger")
CLASSES, IMAGES = 4, 6
FUSIONS = {"average": "adaptor", "augmentation": "images", "neighbour": "refreshed_graph"}


GIVEN = ("root", "versions", "seed", "tasks", "paths", "granularities", "adaptors", "fusions")


def lists_of(tasks: list[str], granularities: list[str], fusions: list[str], baselines: list[str]) -> Lists:
    adaptors = {name: f"adaptor/{name}" for name in granularities}
    return Lists(
        root=".",
        versions="versions.yaml",
        seed=0,
        tasks={task: {"source": "folder"} for task in tasks},
        paths={task: task for task in tasks},
        granularities={name: f"pseudo_labels/{name}" for name in granularities},
        adaptors=adaptors,
        fusions={name: FUSIONS[name] for name in fusions},
        **{name: [] if name == "mrt" else {} for name in Lists.model_fields if name not in (*GIVEN, "models")},
        # A YAML merge puts the adaptors first; the report must not depend on that.
        models=adaptors | {name: KNOWN[name].folder for name in [*baselines, *fusions]},
    )


def write_task(folder: Path, classes: list[str], labelled: bool, rejected: list[tuple[str, str]]) -> None:
    rng = np.random.default_rng(0)
    names = [name for name in classes for _ in range(IMAGES)]
    labels = [classes.index(name) if labelled else -1 for name in names]
    train = [not labelled or label < len(classes) // 2 for label in labels]
    folder.mkdir(parents=True)
    arrays.write(folder / "pixels.zarr", rng.integers(0, 256, (len(names), 20, 20, 3), dtype=np.uint8))
    columns = [
        [f"{name}/{i}.jpg" for i, name in enumerate(names)],
        [folder.name] * len(names),
        labels,
        names if labelled else [""] * len(names),
        ["train" if is_train else "test" for is_train in train],
        *[[20] * len(names)] * 3,
        [f"{i:064x}" for i in range(len(names))],
        [labelled and i % 4 == 1 for i in range(len(names))],
        train,
    ]
    columns = [pa.array(column, field.type) for column, field in zip(columns, TABLE, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=TABLE), folder / "table.parquet")
    with (folder / "rejected.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("path", "reason"), *rejected])


def write_model(folder: Path, metrics: dict, whitened: dict, queries: list[dict]) -> None:
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    # In the protocol `collection` scores are 0.1 lower, and smoothing adds 0.06 where it was tried.
    tried = {"collection": -0.1} | (
        {"smoothed": -0.04} if folder.name in ("encoder", "resolution", "without_training", "recommended") else {}
    )
    for name, change in tried.items():
        values = {task: entry(numbers["r_precision"] + change) for task, numbers in metrics.items()}
        (folder / f"{name}.json").write_text(json.dumps(values))
    record = {"strength": 0.9, "neighbours": 20, "power": 3.0}
    (folder / "smoothing.json").write_text(json.dumps(dict.fromkeys(metrics, record)))
    (folder / "whitened.json").write_text(json.dumps(whitened))
    fields = [("task", pa.string()), ("row", pa.int64()), ("r_precision", pa.float32())]
    schema = pa.schema(
        [*fields, ("map_at_r", pa.float32()), ("recall_at_1", pa.float32()), ("nearest", pa.list_(pa.int64()))]
    )
    for name in ("queries", *(f"{name}_queries" for name in tried)):
        pq.write_table(pa.Table.from_pylist(queries, schema), folder / f"{name}.parquet")


def entry(value: float, queries: int = 12) -> dict:
    return {"r_precision": value, "map_at_r": value * 0.8, "recall_at_1": min(1.0, value * 1.5), "queries": queries}


def queries_of(task: str, seed: int) -> list[dict]:
    """One record per test image with five other test images of the task, at random."""
    rng, rows = np.random.default_rng(seed), range(CLASSES // 2 * IMAGES, CLASSES * IMAGES)
    records = []
    for row in rows:
        nearest = rng.permutation([other for other in rows if other != row])[:5].tolist()
        value = float(np.round(rng.random(), 2))
        records.append({"task": task, "row": row, "nearest": nearest} | dict.fromkeys(METRICS, value))
    return records


# Forms of criterion.csv: what follows the name, then the criterion of any task, and of the second one where it differs.
CANDIDATES = [
    ("k4, layer of 8 from clusters", "k4,1.0,1,clusters,8,1", 0.7, 0.8),
    ("average", "average,1.0,1,none,,1", 0.9, 0.5),
    ("k2", "k2,1.0,1,none,,1", 0.6, 0.6),
    ("k4", "k4,1.0,1,none,,1", 0.5, 0.5),
    ("neighbour", "neighbour,1.0,1,none,,1", 0.4, 0.4),
    ("encoder", "encoder,1.0,1,none,,1", 0.4, 0.3),
    ("encoder, at 2 times the side", "encoder,2.0,1,none,,4", 0.3, 0.3),
]


def write_choice(folder: Path, tasks: list[str], chosen: str = CANDIDATES[0][0], **changes: object) -> None:
    """A choice on these tasks: the chosen finds others than the encoder for every image but the first of each task."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "criterion.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*COLUMNS, *tasks])
        for name, form, first, second in CANDIDATES:
            values = [first if i == 0 else second for i in range(len(tasks))]
            mean = float(np.mean(values)) if tasks else "nan"
            falls = "two" if name == "k2" else ""
            lines.writerow([name, *form.split(","), mean, 0.5, falls, int(name == chosen), *values])
    compared = {
        column: {"encoder": [0.35, 0.3, 0.4], "recommended": [0.75, 0.7, 0.8], "difference": [0.4, 0.35, 0.45]}
        for column in (["mean", *tasks] if tasks else [])
    }
    values = {"name": chosen, "form": {}, "why": ["7 candidates were <b>compared</b>."], "images": 12, "uncertain": []}
    text = json.dumps(values | {"criterion": compared} | changes)
    (folder / "choice.json").write_text(text, encoding="utf-8")
    records = []
    for task in tasks:
        for row in range(IMAGES):
            near = [other for other in range(2 * IMAGES) if other != row]
            start = row if chosen != "encoder" else 0
            records.append({"task": task, "row": row, "encoder": near[:5], "recommended": near[start : start + 5]})
    rows = pa.list_(pa.int64())
    schema = pa.schema([("task", pa.string()), ("row", pa.int64()), ("encoder", rows), ("recommended", rows)])
    pq.write_table(pa.Table.from_pylist(records, schema), folder / "neighbours.parquet")


class World:
    """A data folder; `values[model][task]` are R-Precisions as it is, whitened ones lie 0.01 higher."""

    def __init__(self, root: Path, lists: Lists, values: dict[str, dict[str, float]], unlabelled: set[str]) -> None:
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
        write_choice(root / "choice", list(lists.tasks))
        for name in lists.granularities:
            self.write_adaptor(name)
        for name in lists.fusions:
            self.write_fusion(name)

    def write_adaptor(self, name: str) -> None:
        rows = sum(len(pq.read_table(self.root / "images" / t / "table.parquet", filters=[("split", "=", "train")]))
                   for t in self.lists.tasks)  # fmt: skip
        (self.root / "pseudo_labels" / name).mkdir(parents=True)
        arrays.write(self.root / "pseudo_labels" / name / "labels.zarr", np.arange(rows) % int(name[1:]))
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
        stages = ("images", "pseudo_labels", "adaptor", "fusion", "evaluation", "choice")
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


def plain(root: Path) -> World:
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["pixels", "encoder"])
    return World(root, lists, VALUES, set())


def with_chosen(root: Path, unlabelled: set[str] = frozenset()) -> World:
    """The world where the recommended model is evaluated, too."""
    lists = lists_of(["one", "two"], ["k4", "k2"], list(FUSIONS), ["recommended", "encoder"])
    values = VALUES | {"recommended": {"one": 0.5, "two": 0.49}}
    labelled = {model: {task: v for task, v in row.items() if task not in unlabelled} for model, row in values.items()}
    return World(root, lists, labelled, unlabelled)


def train_on_all_classes(root: Path) -> None:
    """The tables of the protocol `collection`: all but the queries train."""
    for task in ("one", "two"):
        table = pq.read_table(root / "images" / task / "table.parquet").to_pydict()
        table["trains"] = [not is_query for is_query in table["is_query"]]
        pq.write_table(pa.table(table, TABLE), root / "images" / task / "table.parquet")
    for folder in root.glob("pseudo_labels/*"):
        shutil.rmtree(folder)
        arrays.write(folder / "labels.zarr", np.zeros(sum(table["trains"]) * 2, np.int64))


def nothing_trained(root: Path, best: float, unlabelled: set[str] = frozenset()) -> str:
    """The page of a graph that trains nothing, where the encoder's best form is the chosen one."""
    lists = lists_of(["one", "two"], [], [], ["encoder", "without_training", "recommended"])
    values = {"encoder": 0.4, "without_training": best, "recommended": 0.5}
    labelled = {model: {task: v for task in ("one", "two") if task not in unlabelled} for model, v in values.items()}
    world = World(root, lists, labelled, unlabelled)
    write_choice(root / "choice", ["one", "two"], "encoder, at 2 times the side")
    for part in ("pseudo_labels", "adaptor", "fusion"):
        (root / part).mkdir()
    train_on_all_classes(root)
    return (world.draw() / "index.html").read_text(encoding="utf-8")


def page_of(folder: Path) -> Page:
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    page.text = " ".join(page.text.split())
    return page


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def cells_of(folder: Path) -> dict[tuple[str, str], list[str]]:
    """{(model, form): the cells of its row} of the results table."""
    lines = (folder / "table.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {(row[0].split()[0], row[1]): row[2:] for row in rows if row[1] in ("as it is", "whitened")}
