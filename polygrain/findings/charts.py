"""The report's drawings: which numbers go into which figure."""

import math
from typing import Any

from polygrain.findings import scores
from polygrain.report import figures
from polygrain.report.figures import Line
from polygrain.report.rows import LEVELS

FEWEST = 3  # granularities of a curve


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
    for column in columns if len(singles) >= (1 if published else FEWEST) else []:
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
