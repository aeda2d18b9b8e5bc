"""Retrieval metrics: every image queries all others by cosine similarity, ties broken by index."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.compute import processes
from polygrain.compute.blocks import blocks, blocks_within
from polygrain.compute.distributed import Distributed
from polygrain.compute.vectors import CELLS, as_vectors
from polygrain.retrieval import streamed
from polygrain.retrieval.formulas import NAMES, measure
from polygrain.retrieval.index import Index
from polygrain.retrieval.large_classes import large_classes, measure_large
from polygrain.retrieval.ranking import rank

UNLABELLED = -1
# The order in which `score` reports.
REPORTED = ("map_at_r", "r_precision", "recall_at_1")
# The most numbers of a gallery that each of several processes holds alone: 256 MiB. Rankings are quicker there.
WHOLE = 2**26

# Some queries, and the images nearest to each of them, nearest first.
Ranked = tuple[Int64[np.ndarray, " query"], Int64[Tensor, "query rank"]]


@dataclass(frozen=True)
class QueryMetrics:
    """Fractions per query, NaN where no other image is of its class; `nearest`: indices of the nearest others."""

    r_precision: Float64[np.ndarray, " query"]
    map_at_r: Float64[np.ndarray, " query"]
    recall_at_1: Float64[np.ndarray, " query"]
    nearest: Int64[np.ndarray, "query rank"]


def count_relevant(labels: np.ndarray | Tensor | Sequence, n: int) -> tuple[np.ndarray, Int64[np.ndarray, " n"]]:
    """Class numbers, and how many other images share each image's class; none does for unlabelled (-1)."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(f"labels of shape {values.shape} for {n} embeddings; needed is one label each: ({n},)")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"labels hold {values[~np.isfinite(values)][0]}; allowed are class numbers, -1 for unlabelled")
    _, classes, sizes = np.unique(values, return_inverse=True, return_counts=True)
    relevant = sizes[classes] - 1
    if values.dtype.kind in "if":
        relevant[values == UNLABELLED] = 0
    return classes, relevant


def query_metrics(
    embeddings: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence, nearest: int = 5
) -> QueryMetrics:
    """The metrics of every image as a query among all others, and its `nearest` others, nearest first.

    Unlabelled images (-1) stay in the gallery and are relevant to none.
    ValueError for NaN, for lengths that differ, and for more nearest images than there are others.
    """
    with processes.alone():
        return whole_gallery(embeddings, labels, nearest)


def shared_query_metrics(
    embeddings: Distributed, labels: np.ndarray | Tensor | Sequence, nearest: int = 5
) -> QueryMetrics:
    """`query_metrics` where several processes share images and queries: all know all labels, and get all numbers.

    Up to `WHOLE` each holds all images for the while. There, where R is large, which of two images is nearer may differ
    by the number of processes, if their cosines are equal but for rounding. Beyond, each holds its share and a block.
    """
    n, d = embeddings.shape
    if n * d <= WHOLE:
        return whole_gallery(embeddings[:], labels, nearest)
    classes, relevant = count_relevant(labels, n)
    check_nearest(nearest, n)
    found = streamed.rankings(streamed.dealt_out(embeddings), np.maximum(relevant, nearest))
    return measured(found, classes, relevant, nearest, np.full((3, n), np.nan))


def check_nearest(nearest: int, n: int) -> None:
    if not 0 <= nearest < n:
        raise ValueError(f"{nearest} nearest images of {n - 1} others; allowed is 0 to {n - 1}: ask for fewer")


def whole_gallery(
    embeddings: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence, nearest: int
) -> QueryMetrics:
    """The metrics where each process holds all images, and asks for some of them."""
    x = torch.nn.functional.normalize(as_vectors(embeddings, "embeddings"), dim=1)
    n = len(x)
    classes, relevant = count_relevant(labels, n)
    check_nearest(nearest, n)
    scores = np.full((3, n), np.nan)
    # How deep each query is ranked. Queries of large classes need no ranking but for their nearest.
    wanted = relevant.copy()
    gallery = Index(x)
    large = large_classes(gallery, classes, relevant)
    if large:
        queries, values = np.empty(0, np.int64), np.empty((3, 0))
        if mine := large[processes.rank() :: processes.count()]:
            values, certain = measure_large(x, mine)
            queries, values = np.concatenate(mine)[certain], values[:, certain]
        queries = processes.gather_array(queries)
        scores[:, queries], wanted[queries] = processes.gather_array(values.T).T, 0
    return measured(rankings(gallery, np.maximum(wanted, nearest)), classes, wanted, nearest, scores)


def rankings(gallery: Index, depths: Int64[np.ndarray, " query"]) -> Iterator[Ranked]:
    """The images that this process asks for, and their nearest others, as deep as each `depths` says, at least."""
    # Queries of similar depth go together, so that few of them are ranked deeper than they need.
    order = np.argsort(depths, kind="stable")
    # Dealt out in turn, for the later blocks are ranked deeper.
    for part in blocks(len(order), gallery.step)[processes.rank() :: processes.count()]:
        queries = order[part]
        if depth := int(depths[queries].max()):
            yield queries, gallery.ranked(torch.from_numpy(queries).to(gallery.x.device), depth)


def measured(
    rankings: Iterator[Ranked],
    classes: Int64[np.ndarray, " n"],
    relevant: Int64[np.ndarray, " n"],
    nearest: int,
    scores: Float64[np.ndarray, "metric n"],
) -> QueryMetrics:
    """The metrics of the queries that all processes rank, put into `scores` where `relevant` is not 0."""
    found, mine, class_of = np.zeros((len(classes), nearest), np.int64), [np.empty(0, np.int64)], None
    for queries, ranked in rankings:
        mine.append(queries)
        found[queries] = ranked[:, :nearest].cpu().numpy()
        class_of = torch.from_numpy(classes).to(ranked.device) if class_of is None else class_of
        is_measured = relevant[queries] > 0
        ranked, queries = ranked[is_measured], queries[is_measured]
        rows = torch.from_numpy(queries).to(ranked.device)
        hits = class_of[ranked] == class_of[rows][:, None]
        scores[:, queries] = measure(hits, torch.from_numpy(relevant[queries]).to(ranked.device)).cpu().numpy()
    mine = np.concatenate(mine)
    queries = processes.gather_array(mine)
    scores[:, queries] = processes.gather_array(scores[:, mine].T).T
    found[queries] = processes.gather_array(found[mine])
    return QueryMetrics(*scores, found)


def retrieval_metrics(
    embeddings: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence
) -> dict[str, float | int]:
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
    deepest = max(recall_at, default=0)
    is_query, is_gallery = splits == "query", splits == "gallery"
    if is_query.any():
        values, hits = query_gallery(
            embeddings[is_query], labels[is_query], embeddings[is_gallery], labels[is_gallery], deepest
        )
    else:
        found = query_metrics(embeddings, labels, min(deepest, len(labels) - 1))
        values = {name: getattr(found, name) for name in REPORTED}
        hits = labels[found.nearest] == labels[:, None]
    counted = ~np.isnan(values["map_at_r"])
    if not counted.any():
        raise ValueError(f"none of {len(counted)} queries has another image of its class to be found")
    means = {name: float(values[name][counted].mean()) for name in REPORTED}
    return means | {f"recall_at_{k}": float(hits[counted, :k].any(1).mean()) for k in recall_at}


def query_gallery(
    queries: np.ndarray, query_labels: np.ndarray, gallery: np.ndarray, labels: np.ndarray, deepest: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Scores of each query against a gallery that it is not part of, and which of its nearest are of its class."""
    if not len(gallery):
        raise ValueError("there are queries and no gallery: the table's split must name both")
    asked, offered = (torch.nn.functional.normalize(torch.from_numpy(x).float(), dim=1) for x in (queries, gallery))
    relevant = count_in_gallery(query_labels, labels)
    # `rank` looks one place beyond the depth it is asked for, so a column that nobody wants goes last.
    depth = min(max(int(relevant.max()), deepest, 1), len(gallery))
    numbers, scores, hits = torch.from_numpy(labels), [], []
    for part in blocks_within(len(asked), len(gallery), CELLS):
        similarities = torch.nn.functional.pad(asked[part] @ offered.T, (0, 1), value=-torch.inf)
        met = numbers[rank(similarities, depth)] == torch.from_numpy(query_labels[part])[:, None]
        scores.append(measure(met, relevant[part]))
        hits.append(met[:, :deepest])
    return dict(zip(NAMES, torch.cat(scores, 1).numpy(), strict=True)), torch.cat(hits).numpy()


def count_in_gallery(query_labels: np.ndarray, labels: np.ndarray) -> torch.Tensor:
    """How many gallery images are of each query's class."""
    known, counts = np.unique(labels, return_counts=True)
    places = np.searchsorted(known, query_labels).clip(max=len(known) - 1)
    return torch.from_numpy(np.where(known[places] == query_labels, counts[places], 0))
