"""The numbers that the paper prints (grappa.csv, Tables 2 to 5) beside ours: percent, with the difference in points."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polygrain.findings.scores import MEAN, NOTHING, Numbers, Scores
from polygrain.store.tables import read_csv

FILE = Path(__file__).with_name("grappa.csv")
METRICS = ("r_precision", "map_at_r")
# The encoder must repeat its published row this closely, in points, before anything else is believed.
TOLERANCE = 0.5
SUPERVISED = ["all-full", "all-one", "all-many"]  # of Table 4


@dataclass(frozen=True)
class Cell:
    """One number of a table; NaN where it was not measured, or not published."""

    ours: float
    published: float

    @property
    def difference(self) -> float:
        return round(self.ours - self.published, 2)


@dataclass(frozen=True)
class PublishedTable:
    """`rows[model][column][metric]`; the last column is the mean over tasks, of both where both have all tasks."""

    number: int
    columns: list[str]
    rows: dict[str, dict[str, dict[str, Cell]]]

    @property
    def is_measured(self) -> bool:
        cells = [cell for row in self.rows.values() for metrics in row.values() for cell in metrics.values()]
        return not all(math.isnan(cell.ours) for cell in cells)


def read(file: Path = FILE) -> dict[int, dict[str, Numbers]]:
    """{table: {model: {task: {r_precision, map_at_r}}}} in percent."""
    tables: dict[int, dict[str, Numbers]] = {}
    for row in read_csv(file):
        numbers = {metric: float(row[metric]) for metric in METRICS}
        tables.setdefault(int(row["table"]), {}).setdefault(row["model"], {})[row["task"]] = numbers
    return tables


def as_scores(number: int, tasks: Sequence[str]) -> Scores:
    """The published rows of one table on these tasks, with their mean; NaN for what is not printed."""
    rows = {model: {task: NOTHING | numbers for task, numbers in row.items()} for model, row in read()[number].items()}
    return Scores([], rows, {}, {}).over(tasks)


def compare(
    number: int, published: dict[str, Numbers], scores: Scores, tasks: Iterable[str], more: Sequence[str]
) -> PublishedTable:
    """One table: the published rows in their order, then `more` rows of ours; a column per task, and their mean."""
    columns = list(dict.fromkeys([*tasks, *(task for row in published.values() for task in row)]))
    rows = {}
    for model in dict.fromkeys([*published, *more]):
        printed = published.get(model, {})
        cells = {
            task: {
                metric: Cell(scores.get(model, task, metric), printed.get(task, NOTHING)[metric]) for metric in METRICS
            }
            for task in columns
        }
        rows[model] = cells | {MEAN: {metric: mean([cells[task][metric] for task in columns]) for metric in METRICS}}
    return PublishedTable(number, [*columns, MEAN], rows)


def gains(table: PublishedTable) -> dict[str, dict[str, dict[str, Cell]]]:
    """The rows that the paper derives: neighbour fusion less encoder, in Table 4 also less the best supervised model.

    NaN where one of them was not measured.
    """
    others = {2: {"encoder": ["encoder"]}, 4: {"encoder": ["encoder"], "best supervised model": SUPERVISED}}
    derived = {}
    for name, models in others.get(table.number, {}).items():
        found = [table.rows[model] for model in models if model in table.rows]
        if "neighbour" not in table.rows or not found:
            continue
        derived[f"Neighbour fusion less {name}"] = {
            column: {
                metric: Cell(
                    cell.ours - float(np.max([row[column][metric].ours for row in found])),
                    cell.published - float(np.max([row[column][metric].published for row in found])),
                )
                for metric, cell in cells.items()
            }
            for column, cells in table.rows["neighbour"].items()
        }
    return derived


def mean(cells: Sequence[Cell]) -> Cell:
    values = zip(*((cell.ours, cell.published) for cell in cells), strict=True) if cells else ((0.0,), (0.0,))
    return Cell(*(round(math.fsum(column) / len(column), 2) for column in values))


def check(table: PublishedTable, model: str = "encoder") -> dict[str, Any]:
    """Whether a row repeats the published one: its largest difference, in which column, and what was not measured."""
    row = {task: cells for task, cells in table.rows[model].items() if task != MEAN}
    cells = [(task, cell) for task, metrics in row.items() for cell in metrics.values()]
    differences = [(task, cell.difference) for task, cell in cells if not math.isnan(cell.difference)]
    worst, difference = max(differences, key=lambda pair: abs(pair[1]), default=(None, math.nan))
    absent = sorted({task for task, cell in cells if math.isnan(cell.ours)})
    holds = not absent and abs(difference) <= TOLERANCE
    return {"absent": absent, "worst": worst, "difference": difference, "holds": holds}


def as_json(tables: Iterable[PublishedTable]) -> dict[str, Any]:
    """{"table 2": {model: {column: {metric: ours, published_metric, difference_metric}}}}; null where unknown."""

    def numbers(cells: dict[str, Cell]) -> dict[str, float | None]:
        values: dict[str, float] = {}
        for metric, cell in cells.items():
            values |= {
                metric: cell.ours,
                f"published_{metric}": cell.published,
                f"difference_{metric}": cell.difference,
            }
        return {name: None if math.isnan(value) else value for name, value in values.items()}

    return {
        f"table {table.number}": {
            model: {column: numbers(cells) for column, cells in row.items()} for model, row in table.rows.items()
        }
        for table in tables
    }
