"""k-means: k-means++ seeds, exact Lloyd iterations, and exchanges between clusters where Lloyd has come to rest.

The labels of `lloyd` are those of plain Lloyd, which `tests/core/test_kmeans.py` keeps beside it.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from stages.core.clustering.bounds import Bounds
from stages.core.clustering.exchange import exchange
from stages.core.clustering.screen import Screen
from stages.core.clustering.seeding import SeedOrder, seed_order
from stages.core.compute.vectors import CELLS, as_vectors, check_count, group_sums, squared_distances

__all__ = ["Clusters", "SeedOrder", "kmeans", "lloyd", "seed_order"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clusters:
    """`inertia` is the sum of squared distances to the own centroid; `converged`: no label would change any more."""

    labels: Int64[np.ndarray, " n"]
    centroids: Float32[np.ndarray, "k d"]
    inertia: float
    iterations: int
    converged: bool

    @classmethod
    def of(cls, bounds: Bounds, c: Float32[Tensor, "k d"], iterations: int, converged: bool) -> "Clusters":
        inertia = squared_distances(bounds.x, bounds.everyone, c, bounds.labels).sum().item()
        return cls(bounds.labels.cpu().numpy().copy(), c.cpu().numpy(), inertia, iterations, converged)


def as_labels(assignment: np.ndarray | Tensor, n: int, k: int) -> Int64[Tensor, " n"]:
    """A copy of the assignment, checked to name one of k clusters for each of n points."""
    labels = torch.from_numpy(
        np.array(assignment.cpu().numpy() if isinstance(assignment, Tensor) else assignment, np.int64)
    )
    if labels.shape != (n,) or labels.min() < 0 or labels.max() >= k:
        met = (
            f"of shape {tuple(labels.shape)}"
            if labels.shape != (n,)
            else f"with values of {labels.min()} to {labels.max()}"
        )
        raise ValueError(f"assignment {met}; needed is one cluster number of 0 to {k - 1} for each of the {n} points")
    return labels


def update_means(
    x: Float32[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    centroids: Float32[Tensor, "k d"],
    changed: Bool[Tensor, " k"],
) -> Float32[Tensor, "k d"]:
    """Centroids with those of the changed clusters set to their means, summed in float64 in the order of the points."""
    slots = changed.long().cumsum(0) - 1
    members = torch.nonzero(changed[labels])[:, 0]
    groups, count = slots[labels[members]], int(changed.sum())
    sums, counts = group_sums(x, members, groups, count), torch.bincount(groups, minlength=count)
    means = centroids.clone()
    means[changed] = (sums / counts[:, None]).float()
    return means


def fill_empty(
    x: Float32[Tensor, "n d"], labels: Int64[Tensor, " n"], centroids: Float32[Tensor, "k d"]
) -> Int64[Tensor, " point"]:
    """The points that now make up the clusters that were empty; labels and centroids are changed in place.

    In ascending order each empty cluster takes the point farthest from its own centroid (ties to the lowest index)
    among clusters of two points or more.
    """
    sizes = torch.bincount(labels, minlength=len(centroids))
    empty = torch.nonzero(sizes == 0)[:, 0].tolist()
    if not empty:
        return labels[:0]
    far = squared_distances(x, torch.arange(len(x), device=x.device), centroids, labels)
    points, sizes, owners = [], sizes.tolist(), labels.tolist()
    for point in torch.argsort(far, descending=True, stable=True).tolist():
        if len(points) == len(empty) or far[point] == 0:
            break
        if sizes[owners[point]] > 1:
            sizes[owners[point]] -= 1
            points.append(point)
    if len(points) < len(empty):
        k = len(centroids) - len(empty) + len(points)
        raise ValueError(
            f"{len(centroids)} clusters, but the points are too much alike for more than {k}: ask for fewer"
        )
    taken = torch.tensor(points, device=x.device)
    labels[taken] = torch.tensor(empty, device=x.device)
    centroids[labels[taken]] = x[taken]
    return taken


def descend(
    bounds: Bounds, c: Float32[Tensor, "k d"], changed: Bool[Tensor, " k"], max_iterations: int
) -> tuple[Float32[Tensor, "k d"], int, bool]:
    """Lloyd's iterations on the labels of `bounds`, whose `changed` clusters need new means.

    Returns the centroids, how many iterations were done, and whether no label would change any more.
    """
    x, labels = bounds.x, bounds.labels
    for iterations in range(1, max_iterations + 1):
        before = labels.clone()
        c = update_means(x, labels, c, changed)
        bounds.reassign(c)
        bounds.forget(fill_empty(x, labels, c))
        switched = labels != before
        log.debug("iteration %d: %d of %d labels changed", iterations, int(switched.sum()), len(x))
        if not switched.any():
            return c, iterations, True
        changed = touched(labels, before, len(c))
    return c, max_iterations, False


def touched(labels: Int64[Tensor, " n"], before: Int64[Tensor, " n"], k: int) -> Bool[Tensor, " k"]:
    """The clusters that won or lost a point."""
    switched = labels != before
    clusters = torch.cat([labels[switched], before[switched]])
    return torch.zeros(k, dtype=torch.bool, device=labels.device).index_fill_(0, clusters, True)


def lloyd(
    features: np.ndarray | Tensor,
    centroids: np.ndarray | Tensor,
    assignment: np.ndarray | Tensor,
    max_iterations: int,
    *,
    nearest: bool = False,
    exchanges: int = 0,
    cells: int = CELLS,
    screen: Screen | None = None,
) -> Clusters:
    """The clusters after Lloyd's iterations (means, then nearest centroids), until labels stay or `max_iterations`.

    Starts from the means of `assignment`; `nearest=True` promises that this is the nearest of `centroids` for each
    point, ties to the lowest index, as `seed_order` gives it, and spares the first full comparison. Once labels stay,
    up to `exchanges` times clusters are exchanged (exchange.py) and the iterations go on. No cluster is empty at the
    end. `screen`: that of the features, where there is one already. ValueError for NaN, for
    arrays that do not fit together, for points too much alike.
    """
    x, c = as_pair(features, centroids)
    labels = as_labels(assignment, len(x), len(c)).to(x.device)
    if max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations}; allowed is 1 or more")
    bounds = Bounds(screen or Screen(x), c, labels, nearest, cells)
    c = c.clone()
    bounds.forget(fill_empty(x, labels, c))
    everyone = torch.ones(len(c), dtype=torch.bool, device=x.device)
    c, iterations, converged = descend(bounds, c, everyone, max_iterations)
    best = Clusters.of(bounds, c, iterations, converged)
    for number in range(exchanges):
        before = labels.clone()
        labels.copy_(exchange(bounds.screen, before, c, number))
        changed = touched(labels, before, len(c))
        if not changed.any() or not best.converged or iterations >= max_iterations:
            break
        bounds.forget(torch.nonzero(labels != before)[:, 0])
        c, more, converged = descend(bounds, c, changed, max_iterations - iterations)
        iterations += more
        found = Clusters.of(bounds, c, iterations, converged)
        if found.inertia >= best.inertia:
            break
        best = found
    return best


def kmeans(
    features: np.ndarray | Tensor,
    k: int,
    seed: int,
    max_iterations: int = 300,
    *,
    exchanges: int = 1,
    cells: int = CELLS,
) -> Clusters:
    """k clusters: k-means++ seeds, then Lloyd until no label changes, with `exchanges` rounds of exchanges."""
    screen = Screen(as_vectors(features))
    x = screen.x
    seeds = seed_order(x, k, seed, [k], cells=cells, screen=screen)
    start, nearest = x[torch.from_numpy(seeds.order).to(x.device)], seeds.nearest[k]
    return lloyd(x, start, nearest, max_iterations, nearest=True, exchanges=exchanges, cells=cells, screen=screen)


def as_pair(features: np.ndarray | Tensor, centroids: np.ndarray | Tensor) -> tuple[Tensor, Tensor]:
    x = as_vectors(features)
    c = as_vectors(centroids, "centroids").to(x.device)
    if c.shape[1] != x.shape[1]:
        raise ValueError(f"centroids have {c.shape[1]} dimensions and features {x.shape[1]}; they must be the same")
    check_count(len(c), len(x))
    return x, c
