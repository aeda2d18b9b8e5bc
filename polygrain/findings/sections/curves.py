"""R-Precision of single adaptors over their granularity, and all numbers as a long table for `dvc plots`."""

import math
from typing import Any

from polygrain.findings import scores
from polygrain.findings.outcome import Content, Outcome
from polygrain.report import figures
from polygrain.report.figures import Line
from polygrain.report.rows import LEVELS, WHITENED

FEWEST_POINTS = 3  # granularities of a curve


def content(found: Outcome) -> Content:
    return {"curves": granularity_charts(found.table, found.ks)}


def granularity_charts(
    table: scores.Scores, granularities: dict[str, int], published: scores.Scores | None = None
) -> list[dict[str, Any]]:
    """Per task, and for the mean: R-Precision of single adaptors over k, encoder and fusions as levels (Fig. 4).

    `published` are the printed values of the same adaptors, drawn beside ours where there are some.
    """
    singles = [name for name in granularities if name in table.rows]
    levels = [name for name in LEVELS if name in table.rows]
    columns = [scores.MEAN, *table.tasks] if len(table.tasks) > 1 else table.tasks
    charts = []
    for column in columns if len(singles) >= (1 if published else FEWEST_POINTS) else []:
        places = {name: math.log2(granularities[name]) for name in singles}
        lines = [Line("adaptors", "s-k", [(x, table.get(name, column)) for name, x in places.items()])]
        printed = {name: published.get(name, column) for name in singles} if published else {}
        printed = {name: value for name, value in printed.items() if not math.isnan(value)}
        if printed:
            lines.append(Line("published", "s-published", [(places[name], value) for name, value in printed.items()]))
        guides = [Line(name, f"s-{name}", [(0.0, table.get(name, column))]) for name in levels]
        summary = ", ".join(f"{name} {table.get(name, column):.1f}" for name in [*singles, *levels])
        summary += "".join(f", published {name} {value:.1f}" for name, value in printed.items())
        x_ticks = [(x, f"{granularities[name]:,}") for name, x in places.items()]
        label = f"R-Precision in percent, {column}: {summary}"
        drawn = figures.line_chart(
            label, lines, guides, x_ticks=x_ticks, x_label="clusters k (log scale)", y_label="R-Precision, %"
        )
        charts.append({"title": "mean over tasks" if column == scores.MEAN else column, "drawing": drawn})
    return charts


def rows(table: scores.Scores, granularities: dict[str, int]) -> list[list[Any]]:
    """One row per task (and mean) and model, oracle left out; `k` is empty without a granularity."""
    models = [row for row in table.rows if not row.endswith(WHITENED) and row != scores.ORACLE]
    rows: list[list[Any]] = [["task", "model", "k", "item", *scores.METRICS, "r_precision_whitened"]]
    for column in table.columns if table.tasks else []:
        for model in models:
            numbers = [table.get(model, column, metric) for metric in scores.METRICS]
            numbers.append(table.get(model + WHITENED, column))
            shown = ["" if math.isnan(number) else number for number in numbers]
            rows.append([column, model, granularities.get(model, ""), f"{column} {model}", *shown])
    return rows
