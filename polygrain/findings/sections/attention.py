"""The change of each learned fusion's attention in training, its gain, and the largest possible gain."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from polygrain.findings import scores
from polygrain.findings.outcome import Content, Outcome
from polygrain.report import figures
from polygrain.report.rows import in_order
from polygrain.store.tables import read_csv, read_parquet


def content(found: Outcome) -> Content:
    """The attention of fusions, its change in training, and its gain."""
    fusion, evaluation, lists = found.places.fusion, found.places.evaluation, found.lists
    names = [name for name in in_order(lists.models, lists.trained) if name in lists.fusions]
    return {
        "attention": maps(evaluation, names, lists.tasks),
        "fused": rows(fusion, evaluation, lists.fusions, found.table),
        "headroom": headroom(found.table),
    }


def rows(fusion: Path, evaluation: Path, names: Iterable[str], table: scores.Scores) -> list[dict[str, Any]]:
    """Per learned fusion {name, gain, query, key, entropy, turnover}, where it was measured.

    gain: mean R-Precision minus that of the average fusion, in points. query, key: how far they moved from their start,
    in percent of it, mean over layers. entropy: of the weights in each layer, in percent of that of equal ones, mean
    over tasks. turnover: percent of neighbours that are new in each epoch; [] of a graph that is not rebuilt.
    """
    measured = []
    for name in names:
        moved, attention = fusion / name / "moved.csv", evaluation / name / "attention.parquet"
        if name == "average" or not (moved.exists() and attention.exists()):
            continue
        steps, weights = read_csv(moved), read_parquet(attention).to_pylist()
        if not steps or not weights or "entropy" not in weights[0]:
            continue
        layers = sorted({weight["layer"] for weight in weights})
        of_layers = [100 * np.mean([w["entropy"] for w in weights if w["layer"] == layer]) for layer in layers]
        shares = {side: 100 * np.mean([float(step[side]) for step in steps]) for side in ("query", "key")}
        gain = difference(table, name, "average")
        turnover = [
            100 * float(row["turnover"]) for row in read_csv(fusion / name / "history.csv") if "turnover" in row
        ]
        row = {"name": name, "gain": gain, "entropy": [float(value) for value in of_layers], "turnover": turnover}
        measured.append(row | shares)
    return measured


def headroom(table: scores.Scores) -> float:
    """Points that the best adaptor of each task, by test labels, has more than the average fusion; NaN if unknown."""
    return difference(table, scores.ORACLE, "average")


def difference(table: scores.Scores, row: str, base: str) -> float:
    return table.differences(row, base)[scores.MEAN] if table.tasks else math.nan


def maps(evaluation: Path, fusions: Iterable[str], tasks: Iterable[str]) -> dict[str, Any] | None:
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
    drawn = []
    for model, rows in attending.items():
        for task in tasks:
            weights = {(e["adaptor"], e["layer"]): e["weight"] for e in rows if e["task"] == task}
            if not weights:
                continue
            values = [[weights.get((name, layer), math.nan) for layer in layers] for name in names]
            means = ", ".join(f"{name} {100 * np.nanmean(row):.1f}" for name, row in zip(names, values, strict=True))
            label = f"Attention weights of {model} on {task}; mean over layers in percent: {means}"
            drawing = figures.heat_map(label, names, [str(i + 1) for i in layers], values, centre=centre, limit=limit)
            drawn.append({"model": model, "task": task, "drawing": drawing})
    low, high = max(0.0, centre - limit), min(1.0, centre + limit)
    return {
        "maps": drawn,
        "centre": 100 * centre,
        "low": 100 * low,
        "high": 100 * high,
        "departure": 100 * departure,
        # Colours of the key: how strong its lower end is, and where along it the uniform weight lies.
        "low_share": round(100 * (centre - low) / limit),
        "middle": round(100 * (centre - low) / (high - low)),
    }
