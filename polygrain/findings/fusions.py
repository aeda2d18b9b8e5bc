"""How far the attention of each learned fusion moved, what that gained, and what there was to gain."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from polygrain.findings import scores
from polygrain.store.tables import read_csv, read_parquet


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
