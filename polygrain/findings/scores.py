"""The numbers of all models side by side: means over tasks, the oracle, and the gain of one model over another.

All are percent, rounded once to two decimals, so that the same number looks the same everywhere.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polygrain.store.reading import read_json, reading, remedy_for

METRICS = ("r_precision", "map_at_r", "recall_at_1")
MEAN = "mean"
# The mean over tasks of queries that search the images of all tasks. No task has this name, for it has a space.
SHARED = "one gallery"
ORACLE = "oracle"
WHITENED, CENTRED = "_whitened", "_centred"
FUSIONS = ("neighbour", "augmentation", "average")
CHOSEN = "chosen"
UNTRAINED = "untrained"
SIDE = "resolution"  # the encoder at the side that was chosen, and nothing else
DISTILLED = "distilled_"
TEACHER = "teacher_"
NOTHING = dict.fromkeys(METRICS, math.nan)

Numbers = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Scores:
    """`rows[model][task or "mean"][metric]`, beside each model a row `<model>_whitened`; NaN where there is no query.

    A model that `is_finished` has no such row. `SHARED` is a column beside the mean where it was measured.
    `choices[oracle row][task]` names the oracle's adaptor; `queries[task]` is the number of queries.
    """

    tasks: list[str]
    rows: dict[str, Numbers]
    choices: dict[str, dict[str, str]]
    queries: dict[str, int]

    @property
    def columns(self) -> list[str]:
        """The tasks, their mean, and the shared gallery of all of them where some row has it."""
        return [*self.tasks, MEAN, *([SHARED] if any(SHARED in numbers for numbers in self.rows.values()) else [])]

    def get(self, row: str, column: str, metric: str = "r_precision") -> float:
        return self.rows.get(row, {}).get(column, NOTHING)[metric]

    def differences(self, row: str, base: str, metric: str = "r_precision") -> dict[str, float]:
        """`row` less `base`, in points, per column."""
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

    def best_form(self, model: str) -> str:
        """The model's row with the higher mean R-Precision: as it is, or whitened."""
        return max((model, model + WHITENED), key=lambda row: rank(self.get(row, MEAN)))


def rank(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def percent(entry: dict[str, Any]) -> dict[str, float]:
    """One task's fractions in percent; null and NaN both mean that no query was left."""
    return {metric: math.nan if entry[metric] is None else 100 * float(entry[metric]) for metric in METRICS}


def in_order(models: Iterable[str], granularities: Sequence[str]) -> list[str]:
    """The models in the order of the table: baselines, adaptors from coarse to fine, fusions, distilled and supervised
    ones, and last the one to use."""
    order = ["pixels", "encoder", SIDE, UNTRAINED, "tldr", "linear", "one_set", "many_sets"]
    order += [*granularities, *reversed(FUSIONS), "static"]

    def place(name: str) -> int:
        if name in order:
            return order.index(name)
        return len(order) + (2 if name == CHOSEN else 0 if name.startswith(DISTILLED) else 1)

    return sorted(models, key=place)


def is_finished(model: str) -> bool:
    """Whether the model contains a whitening or its replacement, so that whitening it again says nothing."""
    return model in (CHOSEN, UNTRAINED) or model.startswith(DISTILLED)


def read_metrics(file: Path) -> dict[str, dict[str, Any]]:
    values = read_json(file)
    with reading(file, remedy_for(file.parent)):
        for entry in values.values():
            percent(entry), int(entry["queries"])
    return values


def read_shared(file: Path) -> Numbers:
    """In percent, by task; {} where there is one task only, or nothing of the kind was measured."""
    return {task: percent(entry) for task, entry in read_metrics(file).items()} if file.exists() else {}


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
    """All models in order, each as it is and, unless it is finished, whitened; the oracle after the adaptors."""
    names, tasks = list(models), list(tasks)
    if MEAN in tasks:
        raise ValueError(f"a task is named {MEAN!r}, like the mean over tasks; rename it in params.yaml")
    exact: dict[str, Numbers] = {}
    shared: dict[str, Numbers] = {}
    queries: dict[str, int] = {}
    for name in names:
        for form in ("",) if is_finished(name) else ("", WHITENED):
            values = read_metrics(evaluation / name / ("whitened.json" if form else "metrics.json"))
            queries |= {task: entry["queries"] for task, entry in values.items()}
            exact[name + form] = {task: percent(entry) for task, entry in values.items()}
            shared[name + form] = read_shared(evaluation / name / f"shared{form}.json")
        if name in ("encoder", SIDE) and (evaluation / name / "centred.json").exists():
            values = read_metrics(evaluation / name / "centred.json")
            exact[name + CENTRED] = {task: percent(entry) for task, entry in values.items()}
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
    for row, numbers in shared.items():
        if numbers:
            rows[row][SHARED] = with_mean(numbers, measured)[MEAN]
    return Scores(measured, rows, choices, queries)


def with_mean(numbers: Numbers, tasks: Sequence[str]) -> Numbers:
    columns = {task: numbers.get(task, NOTHING) for task in tasks} | {MEAN: average(numbers, tasks)}
    return {column: {metric: round(value, 2) for metric, value in entry.items()} for column, entry in columns.items()}


def headliner(scores: Scores, granularities: Iterable[str]) -> str | None:
    """The model of the summary: the chosen one, else the neighbour fusion, another fusion, the best adaptor."""
    for name in (CHOSEN, *FUSIONS):
        if name in scores.rows:
            return name
    singles = [name for name in granularities if name in scores.rows]
    return max(singles, key=lambda name: rank(scores.get(name, MEAN)), default=None)


def comparisons(scores: Scores, model: str, base: str = "encoder") -> list[dict[str, Any]]:
    """Like against like: {title, row, base, differences}; empty without a baseline.

    A model that `is_finished` is compared with the whitened encoder, the encoder in its best form, and the best fusion
    by test labels.
    """
    if model not in scores.rows or base not in scores.rows:
        return []
    title = "Against the encoder" if is_finished(model) else "As it is"
    pairs = [(title, model, base), ("Whitening alone", base + WHITENED, base)]
    if is_finished(model):
        pairs.append(("Against whitening alone", model, base + WHITENED))
        if UNTRAINED in scores.rows:
            pairs.append(("Against the encoder at its best", model, UNTRAINED))
        fusions = [row for name in FUSIONS if name in scores.rows for row in (name, name + WHITENED)]
        if fusions:
            best = max(fusions, key=lambda row: rank(scores.get(row, MEAN)))
            pairs.append(("Against the best fusion", model, best))
    else:
        pairs.append(("Both whitened", model + WHITENED, base + WHITENED))
        pairs.append(("Best form of each", scores.best_form(model), scores.best_form(base)))
    return [
        {"title": title, "row": row, "base": against, "differences": scores.differences(row, against)}
        for title, row, against in pairs
    ]


def as_json(scores: Scores) -> dict[str, Numbers]:
    """The numbers for `dvc metrics diff`, in percent, without NaN, which JSON does not have."""
    measured = {
        row: {column: entry for column, entry in numbers.items() if not math.isnan(entry["r_precision"])}
        for row, numbers in scores.rows.items()
    }
    return {row: numbers for row, numbers in measured.items() if numbers}
