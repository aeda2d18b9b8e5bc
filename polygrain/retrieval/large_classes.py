"""Retrieval metrics of classes so large that to rank R images would be most of the work (R others of the class).

The metrics ask only which places a query's own class takes, not which other images take the rest. So a query keeps of
its negatives, the images of other classes, nothing but scores: those that may come before its R-th. These are sorted
together with the scores of its own class. The product of two images is looked at once for both of them, while it is in
the cache.
"""

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from polygrain.compute.blocks import blocks
from polygrain.compute.threads import apart
from polygrain.retrieval.formulas import measure
from polygrain.retrieval.index import SHALLOW, Index
from polygrain.retrieval.negatives import BELOW_ALL, Negatives

# Products that a thread makes and looks at: they stay in a core's own cache.
SIDE = 512
# Queries of one class that are looked at together.
QUERIES = 128
# The threshold of a query is estimated from one of so many images, taken in the order of their classes.
SAMPLED = 25
# By so many standard deviations of a count more scores are let in than are expected to be needed.
MARGIN = 2
# The most scores that are held at once: 2 GiB.
HELD = 2**29
# Smaller classes are ranked faster, and so are those of a smaller share of all images than rankings by a shortlist.
FEWEST = 64


def large_classes(
    gallery: Index, classes: Int64[np.ndarray, " n"], relevant: Int64[np.ndarray, " n"]
) -> list[np.ndarray]:
    """The images of each class that is measured here: none where more than `HELD` scores would have to be held.

    Left out are classes with an image that equals one of another class: rounding would decide which is nearer.
    """
    n, sizes = len(classes), np.bincount(classes)
    chosen = (sizes >= FEWEST) & (sizes > SHALLOW * n)
    chosen[classes[relevant == 0]] = False
    if gallery.x.device.type != "cpu" or not chosen.any():
        return []
    later, first = gallery.duplicates.numpy()
    mixed = classes[later] != classes[first]
    chosen[classes[later[mixed]]] = chosen[classes[first[mixed]]] = False
    if sum(size * threshold_place(n, size).most for size in sizes[chosen].tolist()) > HELD:
        return []
    return [np.flatnonzero(classes == number) for number in np.flatnonzero(chosen)]


def measure_large(
    x: Float32[Tensor, "n d"], classes: list[np.ndarray]
) -> tuple[Float64[np.ndarray, "metric query"], Bool[np.ndarray, " query"]]:
    """The metrics of the images of some classes, one class after another, and for which of them they are certain.

    x: rows of unit length, on a processor; classes: the R + 1 rows of each, R at least 1. A query is not certain where
    a negative is as near as an image of its class, and where its threshold was misjudged.
    """
    asked = np.concatenate(classes)
    x = x[torch.from_numpy(np.concatenate([asked, np.setdiff1d(np.arange(len(x)), asked)]))]
    sizes = [len(rows) for rows in classes]
    with apart() as pool:
        negatives = with_thresholds(x, sizes, pool)
        collect(x, sizes, negatives, pool)
        return class_metrics(x, sizes, negatives, pool)


class Place(NamedTuple):
    """The threshold of a class is the score at place `sampled` of its sample; `most` negatives may reach it."""

    sampled: int
    most: int


def threshold_place(n: int, size: int) -> Place:
    """Of a class of this size among n images: R scores or more very likely reach the threshold, and not many more."""
    share = -(-n // SAMPLED) / n
    place = (size - 1) * share
    place += MARGIN * math.sqrt(place)
    return Place(math.ceil(place), min(n - size, math.ceil((place + MARGIN * math.sqrt(place)) / share)))


def with_thresholds(x: Float32[Tensor, "n d"], sizes: list[int], pool: Executor) -> Negatives:
    """The queries, which are the first rows of x: classes of these sizes one after another. They keep no score yet."""
    sample = x[::SAMPLED]

    def thresholds(rows: slice, place: int) -> Float32[np.ndarray, " query"]:
        if place > len(sample):
            return np.full(rows.stop - rows.start, BELOW_ALL)
        scores = torch.mm(x[rows], sample.T).numpy()
        scores.partition(len(sample) - place, axis=1)
        return scores[:, -place]

    places = [threshold_place(len(x), size) for size in sizes]
    work = [
        (rows, place.sampled)
        for members, place in zip(spans(sizes), places, strict=True)
        for rows in blocks(members, QUERIES)
    ]
    found = list(pool.map(lambda part: thresholds(*part), work))
    return Negatives(np.concatenate(found), np.repeat([place.most for place in places], sizes))


def collect(x: Float32[Tensor, "n d"], sizes: list[int], negatives: Negatives, pool: Executor) -> None:
    """Multiplies every two images that are not of one class, and adds the product to the negatives of both."""

    def multiply(rows: slice, columns: slice) -> None:
        scores = torch.mm(x[rows], x[columns].T).numpy()
        negatives.add_rows(scores, rows.start)
        negatives.add_columns(scores[:, : max(0, sum(sizes) - columns.start)], columns.start)

    work = [
        (rows, columns)
        for members in spans(sizes)
        for rows in blocks(members, SIDE)
        for columns in blocks(slice(members.stop, len(x)), max(SIDE, SIDE**2 // (members.stop - members.start)))
    ]
    list(pool.map(lambda part: multiply(*part), work))


def class_metrics(
    x: Float32[Tensor, "n d"], sizes: list[int], negatives: Negatives, pool: Executor
) -> tuple[Float64[np.ndarray, "metric query"], Bool[np.ndarray, " query"]]:
    """The metrics, from the scores of each class and of its negatives, and for which queries they are certain."""

    def look(rows: slice, members: slice) -> tuple[np.ndarray, np.ndarray]:
        own = torch.mm(x[rows], x[members].T).numpy()
        hits, certain = negatives.hits(own, rows.start - members.start, rows.start)
        relevant = torch.full((len(hits),), hits.shape[1])
        return measure(torch.from_numpy(hits), relevant).numpy(), certain

    work = [(rows, members) for members in spans(sizes) for rows in blocks(members, QUERIES)]
    found, certain = zip(*pool.map(lambda part: look(*part), work), strict=True)
    return np.concatenate(found, axis=1), np.concatenate(certain)


def spans(sizes: list[int]) -> Iterator[slice]:
    """The rows of each class, where classes of these sizes follow one another."""
    stop = 0
    for size in sizes:
        yield slice(stop, stop := stop + size)
