"""The numbers of all models side by side: means over tasks, the oracle, and the gain of one model over another.

All are percent, rounded once to two decimals, so that the same number looks the same everywhere.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polygrain.report.rows import CENTRED, LEVELS, WHITENED, row_of
from polygrain.store.reading import read_json, reading, remedy_for
from polygrain.store.tables import read_parquet

METRICS = ("r_precision", "map_at_r", "recall_at_1")
MEAN = "mean"
ORACLE = "oracle"
RECOMMENDED = "recommended"
WITHOUT_TRAINING = "without_training"
SIDE = "resolution"  # the encoder at the side that was chosen, and nothing else
NOTHING = dict.fromkeys(METRICS, math.nan)

Numbers = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Scores:
    """`rows[model][task or "mean"][metric]`, beside each model its `forms`; NaN where there is no query.

    `choices[oracle row][task]` names the oracle's adaptor; `queries[task]` is the number of queries.
    """

    tasks: list[str]
    rows: dict[str, Numbers]
    choices: dict[str, dict[str, str]]
    queries: dict[str, int]

    @property
    def columns(self) -> list[str]:
        """The tasks, and their mean."""
        return [*self.tasks, MEAN]

    @property
    def shown(self) -> list[str]:
        """The mean, if there are several tasks, and the tasks."""
        return [*([MEAN] if len(self.tasks) > 1 else []), *self.tasks]

    def get(self, row: str, column: str, metric: str = "r_precision") -> float:
        return self.rows.get(row, {}).get(column, NOTHING)[metric]

    def differences(self, row: str, base: str, metric: str = "r_precision") -> dict[str, float]:
        """`row` minus `base`, in points, per column."""
        return {
            column: round(self.get(row, column, metric) - self.get(base, column, metric), 2) for column in self.columns
        }

    def over(self, tasks: Sequence[str]) -> "Scores":
        """The same rows on these tasks only, with the mean over them."""
        rows = {row: with_mean(numbers, tasks) for row, numbers in self.rows.items()}
        choices = {row: {task: best[task] for task in best if task in tasks} for row, best in self.choices.items()}
        return Scores(list(tasks), rows, choices, {task: self.queries.get(task, 0) for task in tasks})

    def without(self, model: str) -> "Scores":
        """The same without the rows of a model."""
        rows = {row: of for row, of in self.rows.items() if row != model and not row.startswith(f"{model}_")}
        return replace(self, rows=rows)


def rank(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def percent(entry: dict[str, Any]) -> dict[str, float]:
    """One task's fractions in percent; null and NaN both mean that no query was left."""
    return {metric: math.nan if entry[metric] is None else 100 * float(entry[metric]) for metric in METRICS}


def read_metrics(file: Path) -> dict[str, dict[str, Any]]:
    values = read_json(file)
    with reading(file, remedy_for(file.parent)):
        for entry in values.values():
            percent(entry), int(entry["queries"])
    return values


def read_queries(file: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """The queries of a model that have a relevant image: {task: {row: {row, r_precision, nearest}}}."""
    table = read_parquet(file, ["task", "row", "r_precision", "nearest"])
    queries: dict[str, dict[int, dict[str, Any]]] = {}
    for entry in table.to_pylist():
        if entry["r_precision"] is not None and math.isfinite(entry["r_precision"]):
            queries.setdefault(entry.pop("task"), {})[entry["row"]] = entry
    return queries


def average(numbers: Numbers, tasks: Sequence[str]) -> dict[str, float]:
    """The plain mean over tasks; NaN where the model lacks one of them, for means over other tasks do not compare."""
    return {
        metric: math.fsum(numbers.get(task, NOTHING)[metric] for task in tasks) / len(tasks) if tasks else math.nan
        for metric in METRICS
    }


def choose(candidates: dict[str, Numbers], tasks: Sequence[str]) -> dict[str, str]:
    """For each task the adaptor of highest R-Precision on the test labels, the first of equals (Table 2, oracle)."""
    return {
        task: max(candidates, key=lambda name: rank(candidates[name].get(task, NOTHING)["r_precision"]))
        for task in tasks
    }


def read(evaluation: Path, models: Iterable[str], granularities: Iterable[str], tasks: Iterable[str]) -> Scores:
    """All models in order, each as it is and in its forms; the oracle after the adaptors."""
    names, tasks = list(models), list(tasks)
    if MEAN in tasks:
        raise ValueError(f"a task is named {MEAN!r}, like the mean over tasks; rename it in params.yaml")
    exact: dict[str, Numbers] = {}
    queries: dict[str, int] = {}
    for name in names:
        for form in ("", *row_of(name).forms):
            file = evaluation / name / f"{form.removeprefix('_') or 'metrics'}.json"
            if form != CENTRED or file.exists():
                values = read_metrics(file)
                queries |= {task: entry["queries"] for task, entry in values.items()}
                exact[name + form] = {task: percent(entry) for task, entry in values.items()}
    measured = [
        task for task in tasks if any(math.isfinite(row[task]["r_precision"]) for row in exact.values() if task in row)
    ]
    singles = [name for name in names if name in set(granularities)]
    choices: dict[str, dict[str, str]] = {}
    rows: dict[str, Numbers] = {}
    for name in names:
        rows |= {
            row: with_mean(exact[row], measured) for row in (name, name + CENTRED, name + WHITENED) if row in exact
        }
        if singles and name == singles[-1]:
            for form in ("", WHITENED):
                candidates = {single: exact[single + form] for single in singles}
                choices[ORACLE + form] = best = choose(candidates, measured)
                oracle = {task: candidates[single][task] for task, single in best.items()}
                rows[ORACLE + form] = with_mean(oracle, measured)
    return Scores(measured, rows, choices, queries)


def with_mean(numbers: Numbers, tasks: Sequence[str]) -> Numbers:
    columns = {task: numbers.get(task, NOTHING) for task in tasks} | {MEAN: average(numbers, tasks)}
    return {column: {metric: round(value, 2) for metric, value in entry.items()} for column, entry in columns.items()}


def headliner(scores: Scores, granularities: Iterable[str]) -> str | None:
    """The model of the summary: the chosen one, else the neighbour fusion, another fusion, the best adaptor."""
    for name in reversed(LEVELS):
        if name in scores.rows and name != "encoder":
            return name
    singles = [name for name in granularities if name in scores.rows]
    return max(singles, key=lambda name: rank(scores.get(name, MEAN)), default=None)


def as_json(scores: Scores) -> dict[str, Numbers]:
    """The numbers for `dvc metrics diff`, in percent, without NaN, which JSON does not have."""
    measured = {
        row: {column: entry for column, entry in numbers.items() if not math.isnan(entry["r_precision"])}
        for row, numbers in scores.rows.items()
    }
    return {row: numbers for row, numbers in measured.items() if numbers}
