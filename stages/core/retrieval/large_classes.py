"""Retrieval metrics of classes so large that to rank R images would be most of the work.

The metrics ask only which places a query's own class takes, not which images take them. So the product of two images is
looked at once, for both of them, while it is in the cache: of other classes a query keeps the scores that may come
before its R-th, without their columns, and sorts them with those of its own class.
"""

import math
from collections.abc import Iterator
from concurrent.futures import Executor

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from stages.core.compute.threads import apart
from stages.core.retrieval.formulas import measure
from stages.core.retrieval.index import SHALLOW, Index
from stages.core.retrieval.rivals import BELOW_ALL, Rivals

# Products that a thread makes and looks at: they stay in a core's own cache.
SIDE = 512
# Of so many images, in the order of their classes, one is looked at to judge how low the R-th score is, and the bound
# is so many standard deviations of what is counted lower.
SAMPLED = 25
MARGIN = 2
# Classes of fewer images, and of a smaller share of all, are ranked faster.
FEWEST = 64


def large_classes(
    gallery: Index, classes: Int64[np.ndarray, " n"], relevant: Int64[np.ndarray, " n"], cells: int
) -> list[np.ndarray]:
    """The images of each class that is measured here, for which `cells` scores at most are held.

    None of them equals an image of another class, since rounding would decide which of the two is nearer.
    """
    n, sizes = len(classes), np.bincount(classes)
    chosen = (sizes >= FEWEST) & (sizes > SHALLOW * n)
    chosen[classes[relevant == 0]] = False
    if gallery.x.device.type != "cpu" or not chosen.any():
        return []
    again, first = gallery.again.numpy()
    mixed = classes[again] != classes[first]
    chosen[classes[again[mixed]]] = chosen[classes[first[mixed]]] = False
    if sum(size * expected(n, size)[1] for size in sizes[chosen].tolist()) > cells:
        return []
    return [np.flatnonzero(classes == number) for number in np.flatnonzero(chosen)]


def measure_large(
    x: Float32[Tensor, "n d"], classes: list[np.ndarray]
) -> tuple[Float64[np.ndarray, "metric query"], Bool[np.ndarray, " query"]]:
    """The metrics of the images of some classes, one class after another, and for which of them they are certain.

    x: rows of unit length, on a processor; classes: the R + 1 rows of each, R at least 1. Not certain are queries to
    which an image of another class is as near as one of theirs, and those whose R-th score was misjudged.
    """
    asked = np.concatenate(classes)
    x = x[torch.from_numpy(np.concatenate([asked, np.setdiff1d(np.arange(len(x)), asked)]))]
    sizes = [len(rows) for rows in classes]
    with apart() as pool:
        rivals = judge(x, sizes, pool)
        compete(x, sizes, rivals, pool)
        return score(x, sizes, rivals, pool)


def expected(n: int, size: int) -> tuple[int, int]:
    """For a class of this size: the place of the bound in the sample, and how many others may reach it at most."""
    share = -(-n // SAMPLED) / n
    place = (size - 1) * share
    place += MARGIN * math.sqrt(place)
    return math.ceil(place), min(n - size, math.ceil((place + MARGIN * math.sqrt(place)) / share))


def judge(x: Float32[Tensor, "n d"], sizes: list[int], pool: Executor) -> Rivals:
    """The first rows of x, classes of these sizes one after another, with bounds that R scores or more likely reach."""
    sample = x[::SAMPLED]

    def bound(rows: slice, place: int) -> Float32[np.ndarray, " query"]:
        if place > len(sample):
            return np.full(rows.stop - rows.start, BELOW_ALL)
        scores = torch.mm(x[rows], sample.T).numpy()
        scores.partition(len(sample) - place, axis=1)
        return scores[:, -place]

    room = [expected(len(x), size) for size in sizes]
    work = [(rows, place) for members, (place, _) in zip(spans(sizes), room, strict=True) for rows in split(members)]
    bounds = list(pool.map(lambda part: bound(*part), work))
    return Rivals(np.concatenate(bounds), np.repeat([most for _, most in room], sizes))


def compete(x: Float32[Tensor, "n d"], sizes: list[int], rivals: Rivals, pool: Executor) -> None:
    """Lets every two images meet that are not of one class."""

    def meet(rows: slice, columns: slice) -> None:
        scores = torch.mm(x[rows], x[columns].T).numpy()
        rivals.add_rows(scores, rows.start)
        rivals.add_columns(scores[:, : max(0, sum(sizes) - columns.start)], columns.start)

    work = [
        (rows, columns)
        for members in spans(sizes)
        for rows in split(members, SIDE)
        for columns in split(slice(members.stop, len(x)), max(SIDE, SIDE**2 // (members.stop - members.start)))
    ]
    list(pool.map(lambda part: meet(*part), work))


def score(
    x: Float32[Tensor, "n d"], sizes: list[int], rivals: Rivals, pool: Executor
) -> tuple[Float64[np.ndarray, "metric query"], Bool[np.ndarray, " query"]]:
    """The metrics, from the scores of each class and of its rivals, and for which queries they are certain."""

    def look(rows: slice, members: slice) -> tuple[np.ndarray, np.ndarray]:
        own = torch.mm(x[rows], x[members].T).numpy()
        hits, certain = rivals.hits(own, rows.start - members.start, rows.start)
        relevant = torch.full((len(hits),), hits.shape[1])
        return measure(torch.from_numpy(hits), relevant).numpy(), certain

    work = [(rows, members) for members in spans(sizes) for rows in split(members)]
    found, certain = zip(*pool.map(lambda part: look(*part), work), strict=True)
    return np.concatenate(found, axis=1), np.concatenate(certain)


def spans(sizes: list[int]) -> Iterator[slice]:
    stop = 0
    for size in sizes:
        yield slice(stop, stop := stop + size)


def split(rows: slice, step: int = 128) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))
