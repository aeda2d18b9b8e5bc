"""The protocol `collection` in numbers: new pictures asked of a team's own images, plain and smoothed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pyarrow.compute as pc

from polygrain.findings import scores
from polygrain.report.rows import CENTRED, row_of
from polygrain.store.reading import read_json
from polygrain.store.tables import read_parquet

SMOOTHED = "_smoothed"
TWIN = 0.98  # cosine of a query and an image of the collection, by the encoder as it is, from which they are near-twins


@dataclass(frozen=True)
class TaskSmoothing:
    """The smoothing of one task's collection for the recommended model; strength 0: none."""

    task: str
    strength: float
    neighbours: int


@dataclass(frozen=True)
class CollectionReport:
    """`table` has a row per model, and <model>_smoothed where its collection was smoothed; `trains` on all classes.

    Of the encoder, at its own side and at the chosen one, it has <model>_centred, too: less each collection's mean.
    """

    table: scores.Scores
    smoothings: list[TaskSmoothing]
    trains: bool

    @property
    def unsmoothed(self) -> list[str]:
        """Tasks that stay as they are, where others are smoothed."""
        plain = [one.task for one in self.smoothings if not one.strength]
        return plain if len(plain) < len(self.smoothings) else []

    @property
    def is_measured(self) -> bool:
        return bool(self.table.tasks)

    @property
    def is_trained(self) -> bool:
        """Whether the recommended model is another than the best one without training."""
        recommended, plain = (self.table.rows.get(row) for row in (scores.RECOMMENDED, scores.WITHOUT_TRAINING))
        return None not in (recommended, plain) and recommended != plain

    def without(self, model: str) -> "CollectionReport":
        return replace(self, table=self.table.without(model))


class Step(NamedTuple):
    """A row of the table, its title, and the row that it is one step away from; None of the first.

    `is_aside`: not on the way to the recommended model, but to compare it with.
    """

    title: str
    row: str
    base: str | None
    is_aside: bool = False


def steps(table: scores.Scores, used: str = scores.RECOMMENDED) -> list[Step]:
    """The rows that tell what each step gives, up to the one `used`; last, to compare, smoothing after fewer steps."""
    rows = table.rows
    titles = {"encoder": "encoder as it is", "encoder" + CENTRED: "centred", scores.SIDE + CENTRED: "larger input"}
    if rows.get(scores.RECOMMENDED) != rows.get(scores.WITHOUT_TRAINING):
        titles[scores.WITHOUT_TRAINING] = "model without training"
    titles |= {scores.RECOMMENDED: "recommended model", scores.RECOMMENDED + SMOOTHED: "recommended model, smoothed"}
    found = [row for row in titles if row in rows]
    made = [Step(titles[row], row, base) for row, base in zip(found, [None, *found], strict=False)]
    side = scores.SIDE if scores.SIDE in rows else "encoder"
    plain = {side: side + CENTRED, scores.WITHOUT_TRAINING: scores.WITHOUT_TRAINING}
    if used == "encoder" + SMOOTHED:
        plain["encoder"] = "encoder" + CENTRED if "encoder" + CENTRED in rows else "encoder"
    for row, base in plain.items():
        if base in found and row + SMOOTHED in rows:
            made.append(Step(f"{titles[base]}, smoothed", row + SMOOTHED, base, is_aside=row + SMOOTHED != used))
    return sorted(made, key=lambda step: step.is_aside)


def read(evaluation: Path, models: Iterable[str], tasks: Sequence[str], trains: bool) -> CollectionReport:
    """The numbers of all models in their order; tasks without a labelled query are left out."""
    exact: dict[str, scores.Numbers] = {}
    queries: dict[str, int] = {}
    for name in models:
        forms = {"": "collection.json", CENTRED: "collection_centred.json", SMOOTHED: "smoothed.json"}
        for form, file in forms.items():
            if form == CENTRED and form not in row_of(name).forms:
                continue
            # Strength 0 is no smoothing: its result is the row of the plain images.
            is_one = form != SMOOTHED or any(one.strength for one in read_smoothings(evaluation / name))
            if is_one and (evaluation / name / file).exists():
                values = scores.read_metrics(evaluation / name / file)
                queries |= {task: entry["queries"] for task, entry in values.items()}
                exact[name + form] = {task: scores.percent(entry) for task, entry in values.items()}
    measured = [task for task in tasks if any(task in row for row in exact.values())]
    rows = {row: scores.with_mean(numbers, measured) for row, numbers in exact.items()}
    return CollectionReport(
        scores.Scores(measured, rows, {}, queries), read_smoothings(evaluation / scores.RECOMMENDED), trains
    )


class Twins(NamedTuple):
    """The number of queries with a near-twin in the collection, and by row the mean R-Precision in % without them.

    `crowded`: tasks whose images are so alike that most queries have one; there all queries are counted.
    """

    queries: int
    without: dict[str, float]
    crowded: list[str]


def twins(evaluation: Path, table: scores.Scores) -> Twins | None:
    """Of the encoder as it is, of the models without training and recommended; None where that was not measured."""
    file = evaluation / "encoder/collection_ranked.parquet"
    if not table.tasks or not file.exists():
        return None
    nearest = read_parquet(file, ["task", "row", "rank", "score"])
    near = nearest.filter((pc.field("rank") == 1) & (pc.field("score") >= TWIN))
    found = {task: set(near.filter(pc.field("task") == task)["row"].to_pylist()) for task in table.tasks}
    crowded = [task for task, rows in found.items() if 2 * len(rows) > table.queries[task]]
    found |= {task: set() for task in crowded}
    without = {}
    for row in ("encoder", scores.WITHOUT_TRAINING, scores.RECOMMENDED, scores.RECOMMENDED + SMOOTHED):
        if row in table.rows:
            form = "smoothed" if row.endswith(SMOOTHED) else "collection"
            own = scores.read_queries(evaluation / row.removesuffix(SMOOTHED) / f"{form}_queries.parquet")
            left = [[own[task][query]["r_precision"] for query in own[task].keys() - found[task]] for task in found]
            without[row] = round(100 * fmean(map(fmean, left)), 2)
    return Twins(sum(map(len, found.values())), without, crowded)


def read_smoothings(model: Path) -> list[TaskSmoothing]:
    """The smoothing of each task for a model; [] where none was chosen."""
    file = model / "smoothing.json"
    return [
        TaskSmoothing(task, entry["strength"], entry["neighbours"])
        for task, entry in (read_json(file) if file.exists() else {}).items()
    ]


def as_json(report: CollectionReport) -> dict[str, scores.Numbers]:
    """The numbers for `dvc metrics`, in percent: collection_<model>, and smoothed_<model>."""
    names = {
        row: f"smoothed_{row.removesuffix(SMOOTHED)}" if row.endswith(SMOOTHED) else f"collection_{row}"
        for row in report.table.rows
    }
    return {names[row]: numbers for row, numbers in scores.as_json(report.table).items()}
