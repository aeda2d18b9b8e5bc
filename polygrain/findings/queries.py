"""Queries with their nearest images under two models, chosen by a rule that shows losses too (Grappa, Fig. 5)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from polygrain.findings.neighbours import pixels_of
from polygrain.report.pictures import pictured
from polygrain.store import arrays
from polygrain.store.tables import read_parquet

SHOWN = 5
TYPICAL = "Typical (the median query)"


def read_queries(file: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """The queries of a model that have a relevant image: {task: {row: {row, r_precision, nearest}}}."""
    table = read_parquet(file, ["task", "row", "r_precision", "nearest"])
    queries: dict[str, dict[int, dict[str, Any]]] = {}
    for entry in table.to_pylist():
        if entry["r_precision"] is not None and math.isfinite(entry["r_precision"]):
            queries.setdefault(entry.pop("task"), {})[entry["row"]] = entry
    return queries


def hits(query: dict[str, Any], labels: Int[np.ndarray, " image"]) -> int:
    """How many of the nearest five show the query's class."""
    return int((labels[query["nearest"][:SHOWN]] == labels[query["row"]]).sum())


def ordered(
    before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]], labels: Int[np.ndarray, " image"]
) -> dict[int, tuple[int, float]]:
    """How many more of the nearest five are right, and the gain in R-Precision, of each query; the largest first."""
    change = {
        row: (
            hits(after[row], labels) - hits(before[row], labels),
            after[row]["r_precision"] - before[row]["r_precision"],
        )
        for row in sorted(before.keys() & after.keys())
    }
    return dict(sorted(change.items(), key=lambda item: item[1], reverse=True))


def select_queries(
    before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]], labels: Int[np.ndarray, " image"], gains: int
) -> list[tuple[str, int]]:
    """The queries to show, as (reason, row): largest gains, each of another class, the median, the largest loss.

    Queries are `ordered`, and those that gain alike by row. A loss is always shown where there is one, so the gallery
    cannot flatter.
    """
    change = ordered(before, after, labels)
    order = list(change)
    reasons: dict[int, str] = {}
    for row in order:
        if len(reasons) < gains and change[row] > (0, 0) and labels[row] not in labels[list(reasons)]:
            reasons[row] = "Large gain"
    if order:
        median, last = order[(len(order) - 1) // 2], order[-1]
        if change[last] < (0, 0):
            reasons[last] = "Largest loss"
        reasons.setdefault(median, TYPICAL)
    return [(reasons[row], row) for row in order if row in reasons]


def typical(
    before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]], labels: Int[np.ndarray, " image"]
) -> list[tuple[str, int]]:
    """The median of the queries whose nearest five hold more or fewer right ones, else the median of all."""
    change = ordered(before, after, labels)
    changed = [row for row, (more, _) in change.items() if more]
    rows = changed or list(change)
    share = f"the median of the {len(changed)} of {len(change)} queries that changed" if changed else "the median query"
    return [(share, rows[(len(rows) - 1) // 2])] if rows else []


def show(
    images: Path,
    labels: Int[np.ndarray, " image"],
    class_names: Sequence[str],
    sides: Sequence[tuple[str, dict[int, dict[str, Any]]]],
    selected: Sequence[tuple[str, int]],
    size: int,
) -> list[dict[str, Any]]:
    """The `selected` queries of the task in folder `images`, with the results of both `sides` (title, queries)."""
    pixels = arrays.open(images / "pixels.zarr")

    def picture(row: int) -> str:
        return pictured(pixels_of(pixels, row), size)

    entries = []
    for reason, row in selected:
        lists = []
        for title, queries in sides:
            results = [
                {"picture": picture(i), "class_name": class_names[i], "is_right": bool(labels[i] == labels[row])}
                for i in queries[row]["nearest"][:SHOWN]
            ]
            lists.append({"title": title, "r_precision": 100 * queries[row]["r_precision"], "results": results})
        entries.append({"reason": reason, "picture": picture(row), "class_name": class_names[row], "lists": lists})
    return entries


def changes(before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]]) -> dict[str, int]:
    """How many queries there are, and how many have a better or a worse R-Precision than before."""
    gained = [after[row]["r_precision"] - before[row]["r_precision"] for row in before.keys() & after.keys()]
    return {"all": len(gained), "better": sum(gain > 0 for gain in gained), "worse": sum(gain < 0 for gain in gained)}
