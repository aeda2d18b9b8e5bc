"""The report's drawings: which numbers go into which figure."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from polygrain.findings import scores
from polygrain.report import figures
from polygrain.report.figures import Line
from polygrain.store.tables import read_parquet

LEVELS = ("encoder", "average", "augmentation", "neighbour", scores.RECOMMENDED)
FEWEST = 3  # granularities of a curve
STYLED = (*LEVELS, "static", "supervised")  # other fusions are grey


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


def training_charts(histories: dict[str, list[dict[str, int | float]]]) -> list[dict[str, Any]]:
    """Over epochs: loss and accuracy of adaptors, loss of fusions. Keys of `histories` look like `adaptor@k16`."""
    charts_of = (
        ("Adaptors: classification loss", "adaptor", "loss", "loss"),
        ("Adaptors: pseudo-label accuracy", "adaptor", "accuracy", "accuracy, %"),
        ("Fusions: Barlow Twins loss", "fusion", "loss", "loss"),
    )
    charts = []
    for title, kind, key, y_label in charts_of:
        stages = [stage for stage in histories if stage.startswith(kind + "@")]
        lines = figures.finite([training_line(stage, stages, histories[stage], key) for stage in stages])
        if all(len(line.points) < 2 for line in lines):
            continue
        label = f"{title}, last epoch: {figures.last_values(lines)}"
        drawn = figures.line_chart(label, lines, x_label="epoch", y_label=y_label)
        charts.append({"title": title, "drawing": drawn})
    return charts


def training_line(stage: str, stages: list[str], history: list[dict[str, int | float]], key: str) -> Line:
    """One run over its epochs; coarse to fine adaptors are one hue, ever stronger."""
    kind, _, name = stage.partition("@")
    factor = 100.0 if key == "accuracy" else 1.0
    points = [(float(row["epoch"]), factor * row[key]) for row in history if key in row]
    if kind == "fusion":
        return Line(name, f"s-{name}" if name in STYLED else "s-encoder", points)
    return Line(name, "s-k", points, 0.35 + 0.65 * (stages.index(stage) + 1) / len(stages))


def attention_maps(evaluation: Path, fusions: Iterable[str], tasks: Iterable[str]) -> dict[str, Any] | None:
    """One map (adaptor x layer) per fusion and task, around the uniform weight; None where no fusion attends."""
    attending = {}
    for model in fusions:
        file = evaluation / model / "attention.parquet"
        # The average attends to all alike.
        if model != "average" and file.exists():
            attending[model] = read_parquet(file).to_pylist()
    entries = [entry for fusion in attending.values() for entry in fusion]
    names = sorted({entry["adaptor"] for entry in entries}, key=lambda name: (len(name), name))
    if len(names) < 2:
        return None
    layers, centre = range(max(entry["layer"] for entry in entries) + 1), 1 / len(names)
    departure = max(abs(entry["weight"] - centre) for entry in entries)
    # Weights that hardly leave the uniform value should look so, not fill the scale.
    limit = max(departure, 0.25 * centre)
    maps = []
    for model, rows in attending.items():
        for task in tasks:
            weights = {(e["adaptor"], e["layer"]): e["weight"] for e in rows if e["task"] == task}
            if not weights:
                continue
            values = [[weights.get((name, layer), math.nan) for layer in layers] for name in names]
            means = ", ".join(f"{name} {100 * np.nanmean(row):.1f}" for name, row in zip(names, values, strict=True))
            label = f"Attention weights of {model} on {task}; mean over layers in percent: {means}"
            drawing = figures.heat_map(label, names, [str(i + 1) for i in layers], values, centre=centre, limit=limit)
            maps.append({"model": model, "task": task, "drawing": drawing})
    low, high = max(0.0, centre - limit), min(1.0, centre + limit)
    return {
        "maps": maps,
        "centre": 100 * centre,
        "low": 100 * low,
        "high": 100 * high,
        "departure": 100 * departure,
        # Colours of the key: how strong its lower end is, and where along it the uniform weight lies.
        "low_share": round(100 * (centre - low) / limit),
        "middle": round(100 * (centre - low) / (high - low)),
    }
