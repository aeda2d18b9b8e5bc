"""Queries of each task under the encoder and under a model, chosen by rules that show losses as they show gains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from polygrain.findings.chosen import ENCODER
from polygrain.findings.outcome import Content, Outcome
from polygrain.findings.scores import read_queries
from polygrain.report.pictures import pictured
from polygrain.report.rows import row_of
from polygrain.store import arrays

NEIGHBOURS_SHOWN = 5
BAND = 0.1  # the share of the queries, around the median, of which one is shown for it
MEDIAN, GAIN, LOSS = "Median query", "Large gain", "Large loss"


class Compared(NamedTuple):
    """A query before and after: of R relevant images, how many are among the R nearest, and among those shown."""

    row: int
    relevant: int
    right: tuple[int, int]
    seen: tuple[int, int]

    @property
    def gain(self) -> float:
        """The change in R-Precision."""
        return (self.right[1] - self.right[0]) / self.relevant

    @property
    def ways(self) -> set[float]:
        """The directions, 1, 0 or -1, in which R-Precision and the pictures change."""
        return {float(np.sign(after - before)) for before, after in (self.right, self.seen)}


def content(found: Outcome) -> Content:
    """`examples` are the median of all queries, the largest gain and the largest loss."""
    if not found.model or ENCODER not in found.table.rows:
        return {"galleries": [], "examples": []}
    row = found.advice.row
    sides = found.sides(row if row in found.leading.rows.keys() - {ENCODER} else found.model)
    read = [read_queries(file) for _, file in sides]
    galleries, orders, given = [], dict[str, list[Compared]](), {}
    for task in found.tasks:
        is_plain = task.name in found.searched.unsmoothed
        titles = [
            row_of(name).title + ", smoothed" * (file.name.startswith("smoothed") and not is_plain)
            for name, file in sides
        ]
        both = [(title, rows.get(task.name, {})) for title, rows in zip(titles, read, strict=True)]
        order = compare(both[0][1], both[1][1], task.labels, ~task.is_query if found.leads else task.is_test)
        if not order:
            continue
        images = found.places.images / task.name
        orders[task.name], given[task.name] = order, (images, task.labels, task.class_names, both)
        selected = select_queries(order, task.labels, found.params.gains)
        entries = show(*given[task.name], selected, found.params.thumbnail)
        galleries.append({"task": task.name, "counts": changes(order), "entries": entries})
    examples = []
    for name, reason, one in first_screen(orders):
        examples += show(*given[name], [(f"{name}: {reason}", one)], found.params.thumbnail)
    return {"galleries": galleries, "examples": examples}


def compare(
    before: dict[int, dict[str, Any]],
    after: dict[int, dict[str, Any]],
    labels: Int[np.ndarray, " image"],
    searched: Bool[np.ndarray, " image"],
) -> list[Compared]:
    """The queries of both, the largest gain in R-Precision first, and by row among equals."""
    relevant = np.bincount(labels[searched & (labels >= 0)])
    order = []
    for row in before.keys() & after.keys():
        r = int(relevant[labels[row]] - searched[row])
        sides = before[row], after[row]
        right = [round(side["r_precision"] * r) for side in sides]
        seen = [int((labels[side["nearest"][: min(NEIGHBOURS_SHOWN, r)]] == labels[row]).sum()) for side in sides]
        order.append(Compared(row, r, (right[0], right[1]), (seen[0], seen[1])))
    return sorted(order, key=lambda one: (-one.gain, one.row))


def typical(order: Sequence[Compared]) -> int:
    """The place of the median query, or the nearest of the tenth around it whose pictures change as it does."""
    middle, reach = len(order) // 2, int(BAND * len(order) / 2)
    way = np.sign(order[middle].gain)
    near = sorted(range(middle - reach, middle + reach + 1), key=lambda i: (abs(i - middle), order[i].row))
    return next((i for i in near if order[i].ways == {way}), middle)


def extremes(order: Sequence[Compared]) -> tuple[list[Compared], list[Compared]]:
    """The queries that gain and those that lose, the largest change first, by row among equals."""
    losses = sorted((one for one in order if one.gain < 0), key=lambda one: (one.gain, one.row))
    return [one for one in order if one.gain > 0], losses


def select_queries(
    order: Sequence[Compared], labels: Int[np.ndarray, " image"], count: int
) -> list[tuple[str, Compared]]:
    """The queries to show in the given order, as (reason, query): the median, the largest gains, and as many losses.

    Up to `count` of both, each of another class than the others of its side; of one alone where there is no other.
    """
    sides = []
    for side in extremes(order):
        of_class: dict[int, Compared] = {}
        for one in side:
            of_class.setdefault(labels[one.row], one)
        sides.append([*of_class.values()])
    count = min([count, *filter(None, map(len, sides))])
    reasons = {one: reason for reason, side in zip((GAIN, LOSS), sides, strict=True) for one in side[:count]}
    reasons.setdefault(order[typical(order)], MEDIAN)
    return [(reasons[one], one) for one in order if one in reasons]


def first_screen(orders: Mapping[str, Sequence[Compared]]) -> list[tuple[str, str, Compared]]:
    """Of the queries of all tasks, as (task, reason, query): the median, the largest gain, and the largest loss.

    Where the median does not change it is that of the queries that do, and the reason says so.
    """
    every = [(task, one) for task, order in orders.items() for one in order]
    if not every:
        return []
    every.sort(key=lambda item: -item[1].gain)
    median, reason = every[typical([one for _, one in every])], "the median of all queries"
    changed = [item for item in every if item[1].gain]
    if changed and not median[1].gain:
        median, reason = (
            changed[typical([one for _, one in changed])],
            f"median of the {len(changed)} of {len(every)} that changed",
        )
    picked = {median: reason}
    gain, loss = every[0], min(every, key=lambda item: item[1].gain)
    if gain[1].gain > 0:
        picked.setdefault(gain, "the largest gain")
    if loss[1].gain < 0:
        picked.setdefault(loss, "the largest loss")
    return [(task, reason, one) for (task, one), reason in picked.items()]


def show(
    images: Path,
    labels: Int[np.ndarray, " image"],
    class_names: Sequence[str],
    sides: Sequence[tuple[str, dict[int, dict[str, Any]]]],
    selected: Sequence[tuple[str, Compared]],
    size: int,
) -> list[dict[str, Any]]:
    """The `selected` queries of the task in folder `images`, with the results of both `sides` (title, queries)."""
    pixels = arrays.open(images / "pixels.zarr")

    def picture(row: int) -> str:
        return pictured(pixels_of(pixels, row), size)

    entries = []
    for reason, one in selected:
        lists = []
        for (title, queries), right in zip(sides, one.right, strict=True):
            results = [
                {"picture": picture(i), "class_name": class_names[i], "is_right": bool(labels[i] == labels[one.row])}
                for i in queries[one.row]["nearest"][: min(NEIGHBOURS_SHOWN, one.relevant)]
            ]
            lists.append({"title": title, "right": right, "results": results})
        entry = {"reason": reason, "compared": one, "picture": picture(one.row), "class_name": class_names[one.row]}
        entries.append(entry | {"lists": lists})
    return entries


def changes(order: Sequence[Compared]) -> dict[str, int]:
    """The number of queries, and of those with a better, a worse or the same R-Precision."""
    better, worse = map(len, extremes(order))
    return {"all": len(order), "better": better, "worse": worse, "same": len(order) - better - worse}


def pixels_of(pixels: arrays.Reader, row: int) -> UInt8[np.ndarray, "y x 3"]:
    (image,) = pixels.whole(np.array([row]))
    return image
