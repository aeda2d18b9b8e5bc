"""Retrieval metrics by cosine similarity: every image queries all others, or queries ask a gallery of their own."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.compute import device
from polygrain.compute.blocks import blocks
from polygrain.compute.vectors import as_vectors
from polygrain.retrieval.ranking_metrics import NAMES, measure

UNLABELLED = -1
# The order in which `score` reports.
REPORTED = ("map_at_r", "r_precision", "recall_at_1")
# Cosines held at once, 32 MiB of float32, and queries asked at once at least: fewer read the gallery for little work.
COSINES, QUERIES = 2**23, 256
# By which the length of a unit vector differs from 1 in float32.
ROUNDING = 1e-6
# On a CPU: columns of a group, whose largest alone is ranked at first, and columns per rank from which that pays.
GROUP, MANY = 8, 40
# Ranks from which numpy selects faster than `topk` does there, and rows that it selects from at once.
DEEP, SELECTED = 50, 64

Labels = np.ndarray | Tensor | Sequence[object]


class Ranked(NamedTuple):
    """Ranked lists one after the other, nearest first: the images of each list, their cosines, and the lengths."""

    images: Int64[np.ndarray, " place"]
    cosines: Float32[np.ndarray, " place"]
    lengths: Int64[np.ndarray, " query"]


@dataclass(frozen=True)
class QueryMetrics:
    """Fractions per query, NaN where no other image is of its class; `nearest`: indices of the nearest others.

    `ranked` has as many images of each query as are relevant, at most as many as were asked for; none without.
    """

    r_precision: Float64[np.ndarray, " query"]
    map_at_r: Float64[np.ndarray, " query"]
    recall_at_1: Float64[np.ndarray, " query"]
    nearest: Int64[np.ndarray, "query rank"]
    ranked: Ranked


def largest_of_groups(
    values: Float32[Tensor, "row column"], depth: int
) -> tuple[Float32[Tensor, "row rank"], Int64[Tensor, "row rank"]]:
    """`topk` among the columns of the `depth` groups with the largest heads: no other group has a larger one."""
    rows, columns = values.shape
    groups = columns // GROUP
    first = values[:, : GROUP * groups].unflatten(1, (GROUP, groups)).amax(1).topk(depth).indices
    members = (first[:, None] + torch.arange(0, GROUP * groups, groups)[:, None]).flatten(1)
    members = torch.cat([members, torch.arange(GROUP * groups, columns).expand(rows, -1)], 1)
    best, order = values.gather(1, members).topk(depth)
    return best, members.gather(1, order)


def largest(
    values: Float32[Tensor, "row column"], depth: int
) -> tuple[Float32[Tensor, "row rank"], Int64[Tensor, "row rank"]]:
    """`topk`: the `depth` largest values of each row, largest first, and their columns."""
    is_cpu = values.device.type == "cpu"
    if is_cpu and 0 < depth * MANY <= values.shape[1]:
        return largest_of_groups(values, depth)
    if not is_cpu or depth < DEEP:
        return values.topk(depth)
    # `topk` takes 3 to 5 times as long at depth 250 of 5,000 or 10,000, and as long at 60 of 60,000: with one thread,
    # and with two, which numpy does not use by itself.
    best, columns = values.new_empty(len(values), depth), torch.empty((len(values), depth), dtype=torch.int64)

    def select(part: slice) -> None:
        rows = values[part].numpy()
        places = np.argpartition(rows, -depth)[:, -depth:]
        chosen = np.take_along_axis(rows, places, 1)
        order = np.argsort(-chosen)
        best[part] = torch.from_numpy(np.take_along_axis(chosen, order, 1))
        columns[part] = torch.from_numpy(np.take_along_axis(places, order, 1))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(select, blocks(len(values), SELECTED)))
    return best, columns


def rankings(
    queries: Float32[Tensor, "query d"], gallery: Float32[Tensor, "row d"], depths: Int64[Tensor, " query"], own: bool
) -> Iterator[tuple[Int64[Tensor, " some"], Int64[Tensor, "some rank"], Float32[Tensor, "some rank"]]]:
    """Yields queries, block by block, and their nearest gallery rows, nearest first, at least as many as `depths` says.

    Beside the rows stand their cosines.

    `own`: query i is row i of the gallery and is left out. A large gallery passes by in blocks, with a running best.
    """
    n = len(gallery)
    step = min(len(queries), max(QUERIES, COSINES // n))
    parts = list(blocks(n, max(1, COSINES // step)))
    # Taken once: to get it anew costs a CPU up to half of the products.
    space = queries.new_empty(step * max(part.stop - part.start for part in parts))
    # Queries of similar depth go together, so that few are ranked deeper than they need.
    for some in depths.argsort(stable=True).split(step):
        depth = int(depths[some].max())
        cosines, ranked = queries.new_empty(len(some), 0), some.new_empty(len(some), 0)
        for part in parts:
            block = space[: len(some) * (part.stop - part.start)].view(len(some), -1)
            with device.exact():
                torch.mm(queries[some], gallery[part].T, out=block)
            if own:
                here = torch.nonzero((some >= part.start) & (some < part.stop))[:, 0]
                block[here, some[here] - part.start] = -torch.inf
            values, rows = largest(block, min(depth, block.shape[1]))
            rows += part.start
            if ranked.shape[1]:
                values, rows = torch.cat([cosines, values], 1), torch.cat([ranked, rows], 1)
                values, order = largest(values, min(depth, values.shape[1]))
                rows = rows.gather(1, order)
            cosines, ranked = values, rows
        yield some, ranked, cosines


def metrics_of(
    queries: Float32[Tensor, "query d"],
    query_classes: Int64[np.ndarray, " query"],
    gallery: Float32[Tensor, "row d"],
    classes: Int64[np.ndarray, " row"],
    nearest: int,
    own: bool,
    ranks: int = 0,
) -> QueryMetrics:
    """The metrics of queries whose relevant images are the gallery's of the same class; none is relevant to -1.

    Of each query `ranks` images at most are kept with their cosines.
    """
    sizes = np.bincount(classes[classes >= 0], minlength=max(query_classes.max(), 0) + 1)
    relevant = torch.from_numpy(np.where(query_classes >= 0, sizes[query_classes] - own, 0)).to(gallery.device)
    of_row, of_query = (torch.from_numpy(numbers).to(gallery.device) for numbers in (classes, query_classes))
    scores = torch.full((3, len(queries)), torch.nan, dtype=torch.float64)
    neighbours = torch.empty((len(queries), nearest), dtype=torch.int64)
    lengths = relevant.clamp_max(ranks).cpu()
    starts, total = lengths.cumsum(0) - lengths, int(lengths.sum())
    images, kept = torch.empty(total, dtype=torch.int64), torch.empty(total)
    for some, ranked, cosines in rankings(queries, gallery, relevant.clamp_min(nearest), own):
        neighbours[some.cpu()] = ranked[:, :nearest].cpu()
        places = torch.arange(min(ranks, ranked.shape[1]))
        is_kept = places < lengths[some.cpu(), None]
        at = (starts[some.cpu(), None] + places)[is_kept]
        images[at], kept[at] = ranked[:, : len(places)].cpu()[is_kept], cosines[:, : len(places)].cpu()[is_kept]
        if ranked.shape[1]:
            scores[:, some.cpu()] = measure(of_row[ranked] == of_query[some, None], relevant[some]).cpu()
    r_precision, map_at_r, recall_at_1 = scores.numpy()
    lists = Ranked(images.numpy(), kept.numpy(), lengths.numpy())
    return QueryMetrics(r_precision, map_at_r, recall_at_1, neighbours.numpy(), lists)


def class_numbers(labels: Labels, n: int) -> Int64[np.ndarray, " n"]:
    """A number for each class, -1 for unlabelled images; ValueError unless there is one finite label for each of n."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(f"labels of shape {values.shape} for {n} embeddings; needed is one label each: ({n},)")
    numeric = values.dtype.kind in "iuf"
    if numeric and not np.isfinite(values).all():
        raise ValueError(f"labels hold {values[~np.isfinite(values)][0]}; allowed are class numbers, -1 for unlabelled")
    classes = np.unique(values, return_inverse=True)[1]
    return np.where(values == UNLABELLED, -1, classes) if numeric else classes


def unit_vectors(embeddings: np.ndarray | Tensor) -> Float32[Tensor, "n d"]:
    """The embeddings, of unit length: a tensor's where it is, an array's on the GPU if there is one.

    Those that are of unit length are not copied: there may be gigabytes of them.
    """
    x = as_vectors(embeddings, "embeddings")
    x = x if isinstance(embeddings, Tensor) else x.to(device.best())
    lengths = torch.linalg.vector_norm(x, dim=1)
    is_unit = ((lengths - 1).abs() <= ROUNDING) | (lengths == 0)
    return x if is_unit.all() else torch.nn.functional.normalize(x, dim=1)


def query_metrics(embeddings: np.ndarray | Tensor, labels: Labels, nearest: int = 5, ranks: int = 0) -> QueryMetrics:
    """The metrics of every image as a query among all others, and its `nearest` others, nearest first.

    Unlabelled images (-1) stay in the gallery and are relevant to none. Of images that are equally near, any may come
    first. ValueError for NaN, for lengths that differ, and for more nearest images than there are others.
    """
    x = unit_vectors(embeddings)
    classes = class_numbers(labels, len(x))
    if not 0 <= nearest < len(x):
        raise ValueError(
            f"{nearest} nearest images of {len(x) - 1} others; allowed is 0 to {len(x) - 1}: ask for fewer"
        )
    return metrics_of(x, classes, x, classes, nearest, own=True, ranks=ranks)


def collection_metrics(
    queries: np.ndarray | Tensor,
    gallery: np.ndarray | Tensor,
    query_labels: Labels,
    labels: Labels,
    nearest: int = 0,
    ranks: int = 0,
) -> QueryMetrics:
    """`query_metrics` of queries that are no part of the gallery; `nearest` are rows of it."""
    asked, offered = unit_vectors(queries), unit_vectors(gallery)
    names = class_numbers(np.concatenate([query_labels, labels]), len(asked) + len(offered))
    return metrics_of(asked, names[: len(asked)], offered, names[len(asked) :], nearest, own=False, ranks=ranks)


def retrieval_metrics(embeddings: np.ndarray | Tensor, labels: Labels) -> dict[str, float | int]:
    """Mean r_precision, map_at_r and recall_at_1 as fractions, over the `queries` that have a relevant image.

    `left_out` counts the others. ValueError as `query_metrics`, and where no query is left.
    """
    scores = query_metrics(embeddings, labels, 0)
    counted = ~np.isnan(scores.r_precision)
    if not counted.any():
        raise ValueError(f"none of {len(counted)} labels occurs twice; needed is a class of two images or more")
    means: dict[str, float | int] = {name: float(getattr(scores, name)[counted].mean()) for name in NAMES}
    return means | {"queries": int(counted.sum()), "left_out": int((~counted).sum())}


def score(
    embeddings: Float32[np.ndarray, "image dim"],
    labels: Int64[np.ndarray, " image"],
    splits: np.ndarray,
    recall_at: Sequence[int] = (),
) -> dict[str, float]:
    """Mean map_at_r, r_precision, recall_at_1 and `recall_at_<k>` as fractions, by cosine similarity.

    `splits` says "query" or "gallery" of each image where these are apart (In-shop); else every image queries all
    others. Queries without a relevant image do not count. ValueError where none is left.
    """
    x, classes = unit_vectors(embeddings), class_numbers(labels, len(embeddings))
    apart = bool((splits == "query").any())
    asking, offered = (splits == "query", splits == "gallery") if apart else (np.full(len(x), True),) * 2
    if not offered.any():
        raise ValueError("there are queries and no gallery: the table's split must name both")
    nearest = min(max(recall_at, default=0), int(offered.sum()) - (not apart))
    scores = metrics_of(x[asking], classes[asking], x[offered], classes[offered], nearest, own=not apart)
    counted = ~np.isnan(scores.map_at_r)
    if not counted.any():
        raise ValueError(f"none of {len(counted)} queries has another image of its class to be found")
    hits = (classes[offered][scores.nearest] == classes[asking][:, None])[counted]
    means = {name: float(getattr(scores, name)[counted].mean()) for name in REPORTED}
    return means | {f"recall_at_{k}": float(hits[:, :k].any(1).mean()) for k in recall_at}
