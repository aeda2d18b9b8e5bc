"""Queries with their nearest images under two models, chosen by a rule that shows losses too (Grappa, Fig. 5)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from polygrain.report.pictures import pictured
from polygrain.store import arrays
from polygrain.store.tables import read_parquet

SHOWN = 5


def read_queries(evaluation: Path, model: str) -> dict[str, dict[int, dict]]:
    """The queries of a model that have a relevant image: {task: {row: {row, r_precision, nearest}}}."""
    table = read_parquet(evaluation / model / "queries.parquet", ["task", "row", "r_precision", "nearest"])
    queries: dict[str, dict[int, dict]] = {}
    for entry in table.to_pylist():
        if entry["r_precision"] is not None and math.isfinite(entry["r_precision"]):
            queries.setdefault(entry.pop("task"), {})[entry["row"]] = entry
    return queries


def hits(query: dict, labels: Int[np.ndarray, " image"]) -> int:
    """How many of the nearest five show the query's class."""
    return int((labels[query["nearest"][:SHOWN]] == labels[query["row"]]).sum())


class Change(NamedTuple):
    """What a query gains: how many more of the nearest five are right, then how much R-Precision."""

    hits: int
    r_precision: float


def select_queries(
    before: dict[int, dict], after: dict[int, dict], labels: Int[np.ndarray, " image"], gains: int
) -> list[tuple[str, int]]:
    """The queries to show, as (reason, row): largest gains, each of another class, the median, the largest loss.

    Queries are ordered by how many more of the nearest five are right, then by the gain in R-Precision, then by row.
    A loss is always shown where there is one, so the gallery cannot flatter.
    """
    change = {
        row: Change(
            hits(after[row], labels) - hits(before[row], labels),
            after[row]["r_precision"] - before[row]["r_precision"],
        )
        for row in before.keys() & after.keys()
    }
    order = sorted(change, key=lambda row: (-change[row].hits, -change[row].r_precision, row))
    chosen: dict[int, str] = {}
    for row in order:
        if len(chosen) < gains and change[row] > (0, 0) and labels[row] not in {labels[other] for other in chosen}:
            chosen[row] = "Large gain"
    if order:
        median, last = order[(len(order) - 1) // 2], order[-1]
        if change[last] < (0, 0):
            chosen[last] = "Largest loss"
        chosen.setdefault(median, "Typical (the median query)")
    return [(chosen[row], row) for row in order if row in chosen]


def show(
    images: Path,
    labels: Int[np.ndarray, " image"],
    class_names: Sequence[str],
    sides: Sequence[tuple[str, dict[int, dict]]],
    gains: int,
    size: int,
) -> list[dict]:
    """The chosen queries of the task in folder `images`, with what each of the two `sides` (title, queries) finds."""
    (_, before), (_, after) = sides
    pixels = arrays.open(images / "pixels.zarr")

    def picture(row: int) -> str:
        (image,) = pixels[np.array([row])]
        return pictured(image, size)

    entries = []
    for reason, row in select_queries(before, after, labels, gains):
        lists = []
        for title, queries in sides:
            found = [
                {
                    "picture": picture(other),
                    "class_name": class_names[other],
                    "is_right": bool(labels[other] == labels[row]),
                }
                for other in queries[row]["nearest"][:SHOWN]
            ]
            lists.append({"title": title, "r_precision": 100 * queries[row]["r_precision"], "found": found})
        entries.append({"reason": reason, "picture": picture(row), "class_name": class_names[row], "lists": lists})
    return entries


def changes(before: dict[int, dict], after: dict[int, dict]) -> dict[str, int]:
    """How many queries there are, and how many have a better or a worse R-Precision than before."""
    gained = [after[row]["r_precision"] - before[row]["r_precision"] for row in before.keys() & after.keys()]
    return {"all": len(gained), "better": sum(gain > 0 for gain in gained), "worse": sum(gain < 0 for gain in gained)}
