"""The numbers that the paper prints (grappa.csv, Tables 2 to 5) beside ours: percent, with the difference in points."""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from polygrain.grappa.report.scores import MEAN, NOTHING, Numbers, Scores

FILE = Path(__file__).with_name("grappa.csv")
METRICS = ("r_precision", "map_at_r")
# The encoder must repeat its published row this closely, in points, before anything else is believed.
TOLERANCE = 0.5


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
        return any(
            not math.isnan(c.ours) for row in self.rows.values() for cells in row.values() for c in cells.values()
        )


def read(file: Path = FILE) -> dict[int, dict[str, Numbers]]:
    """{table: {model: {task: {r_precision, map_at_r}}}} in percent."""
    tables: dict[int, dict[str, Numbers]] = {}
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
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
        cells = {
            task: {
                metric: Cell(
                    scores.get(model, task, metric), published.get(model, {}).get(task, {}).get(metric, math.nan)
                )
                for metric in METRICS
            }
            for task in columns
        }
        rows[model] = cells | {MEAN: {metric: mean([cells[task][metric] for task in columns]) for metric in METRICS}}
    return PublishedTable(number, [*columns, MEAN], rows)


def mean(cells: Sequence[Cell]) -> Cell:
    count = max(1, len(cells))
    return Cell(
        round(math.fsum(cell.ours for cell in cells) / count, 2),
        round(math.fsum(cell.published for cell in cells) / count, 2),
    )


def check(table: PublishedTable, model: str = "encoder") -> dict:
    """Whether a row repeats the published one: its largest difference, in which column, and what was not measured."""
    cells = {
        (column, metric): cell
        for column in table.columns
        if column != MEAN
        for metric, cell in table.rows[model][column].items()
    }
    measured = {place: cell.difference for place, cell in cells.items() if not math.isnan(cell.difference)}
    absent = sorted({column for (column, _), cell in cells.items() if math.isnan(cell.ours)})
    column, metric = max(measured, key=lambda place: abs(measured[place]), default=(None, None))
    difference = measured.get((column, metric), math.nan)
    return {
        "model": model,
        "absent": absent,
        "worst": column,
        "difference": difference,
        "holds": not absent and abs(difference) <= TOLERANCE,
    }


def as_json(tables: Iterable[PublishedTable]) -> dict:
    """{"table 2": {model: {column: {metric: ours, published_metric, difference_metric}}}}; null where unknown."""

    def known(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {
        f"table {table.number}": {
            model: {
                column: {
                    f"{prefix}{metric}": known(value)
                    for metric, cell in cells.items()
                    for prefix, value in (
                        ("", cell.ours),
                        ("published_", cell.published),
                        ("difference_", cell.difference),
                    )
                }
                for column, cells in row.items()
            }
            for model, row in table.rows.items()
        }
        for table in tables
    }
