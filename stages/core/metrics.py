"""Retrieval metrics: every image queries all others by cosine similarity, ties broken by index."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from stages.core.gallery import Gallery
from stages.core.large_classes import large_classes, measure_large
from stages.core.measures import measure
from stages.core.vectors import as_vectors

UNLABELLED = -1
# The most similarities that are held at once: 2 GiB.
HELD = 2**29


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
    embeddings: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence, nearest: int = 5, *, cells: int = HELD
) -> QueryMetrics:
    """The metrics of every image as a query among all others, and its `nearest` others, nearest first.

    Unlabelled images (-1) stay in the gallery and are relevant to none. `cells` bounds the similarities held at once.
    ValueError for NaN, for lengths that differ, and for more nearest images than there are others.
    """
    x = torch.nn.functional.normalize(as_vectors(embeddings, "embeddings"), dim=1)
    n = len(x)
    classes, relevant = count_relevant(labels, n)
    if not 0 <= nearest < n:
        raise ValueError(f"{nearest} nearest images of {n - 1} others; allowed is 0 to {n - 1}: ask for fewer")
    scores, found = np.full((3, n), np.nan), np.zeros((n, nearest), np.int64)
    # Of those that are measured here only the nearest are still wanted.
    wanted = relevant.copy()
    gallery = Gallery(x, cells)
    large = large_classes(gallery, classes, relevant, cells)
    if large:
        values, certain = measure_large(x, large)
        queries = np.concatenate(large)[certain]
        scores[:, queries], wanted[queries] = values[:, certain], 0
    class_of = torch.from_numpy(classes).to(x.device)
    # Queries of similar R go together, so that few of them are ranked deeper than they need.
    order = np.argsort(wanted, kind="stable")
    for start in range(0, n, gallery.step):
        queries = order[start : start + gallery.step]
        depth = max(int(wanted[queries].max()), nearest)
        if depth == 0:
            continue
        rows = torch.from_numpy(queries).to(x.device)
        ranked = gallery.ranked(rows, depth)
        found[queries] = ranked[:, :nearest].cpu().numpy()
        ranked, rows, queries = (of[wanted[queries] > 0] for of in (ranked, rows, queries))
        hits = class_of[ranked] == class_of[rows][:, None]
        scores[:, queries] = measure(hits, torch.from_numpy(wanted[queries]).to(x.device)).cpu().numpy()
    return QueryMetrics(*scores, found)


def retrieval_metrics(
    embeddings: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence, *, cells: int = HELD
) -> dict[str, float | int]:
    """Mean r_precision, map_at_r and recall_at_1 as fractions, over the `queries` that have a relevant image.

    `left_out` counts the others. ValueError as `query_metrics`, and where no query is left.
    """
    scores = query_metrics(embeddings, labels, 0, cells=cells)
    counted = ~np.isnan(scores.r_precision)
    if not counted.any():
        raise ValueError(f"none of {len(counted)} labels occurs twice; needed is a class of two images or more")
    names = ("r_precision", "map_at_r", "recall_at_1")
    means: dict[str, float | int] = {name: float(getattr(scores, name)[counted].mean()) for name in names}
    return means | {"queries": int(counted.sum()), "left_out": int((~counted).sum())}
