"""Retrieval metrics: every image queries all others by cosine similarity, ties broken by index.

With R the number of other images of the query's class: R-Precision is the share of its class among the R nearest,
MAP@R the mean over i = 1..R of precision(i) where the i-th is of its class and 0 where it is not (Musgrave et al.,
2020, 3.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from stages.core.gallery import WHOLE, Gallery
from stages.core.vectors import as_vectors

UNLABELLED = -1


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
    embeddings: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence, nearest: int = 5, *, cells: int = WHOLE
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
    found = np.full((3, n), np.nan), np.zeros((n, nearest), np.int64)
    class_of = torch.from_numpy(classes).to(x.device)
    gallery = Gallery(x, cells)
    # Queries of similar R go together, so that few of them are ranked deeper than they need.
    order = np.argsort(relevant, kind="stable")
    for start in range(0, n, gallery.step):
        queries = order[start : start + gallery.step]
        depth = max(int(relevant[queries].max()), nearest)
        if depth == 0:
            continue
        rows = torch.from_numpy(queries).to(x.device)
        ranked = gallery.ranked(rows, depth)
        found[1][queries] = ranked[:, :nearest].cpu().numpy()
        hits = class_of[ranked] == class_of[rows][:, None]
        found[0][:, queries] = measure(hits, torch.from_numpy(relevant[queries]).to(x.device)).cpu().numpy()
    return QueryMetrics(*found[0], found[1])


def measure(hits: Tensor, relevant: Int64[Tensor, " query"]) -> Float64[Tensor, "metric query"]:
    """R-Precision, MAP@R and Recall@1 from what is of the query's class in ranked order; NaN where R is 0."""
    places = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    counted = hits & (places <= relevant[:, None])
    precision = counted.cumsum(1) / places.double()
    r_precision = counted.sum(1) / relevant.double()
    map_at_r = (precision * counted).sum(1) / relevant.double()
    recall_at_1 = torch.where(relevant > 0, hits[:, 0].double(), torch.nan)
    return torch.stack([r_precision, map_at_r, recall_at_1])


def retrieval_metrics(
    embeddings: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence, *, cells: int = WHOLE
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
