"""R-Precision of single adaptors over their granularity, and all numbers as a long table for `dvc plots`."""

import math
from typing import Any

from polygrain.findings import charts, scores
from polygrain.findings.outcome import Content, Outcome

TITLE = "Granularities"


def content(found: Outcome) -> Content:
    return {"curves": charts.granularity_charts(found.table, found.ks)}


def rows(table: scores.Scores, granularities: dict[str, int]) -> list[list[Any]]:
    """One row per task (and mean) and model, oracle left out; `k` is empty for what has no granularity."""
    models = [row for row in table.rows if not row.endswith(scores.WHITENED) and row != scores.ORACLE]
    rows: list[list[Any]] = [["task", "model", "k", "item", *scores.METRICS, "r_precision_whitened"]]
    for column in table.columns if table.tasks else []:
        for model in models:
            numbers = [table.get(model, column, metric) for metric in scores.METRICS]
            numbers.append(table.get(model + scores.WHITENED, column))
            shown = ["" if math.isnan(number) else number for number in numbers]
            rows.append([column, model, granularities.get(model, ""), f"{column} {model}", *shown])
    return rows
