"""k-means: k-means++ seeds, then exact Lloyd iterations that skip what provably cannot change.

Lloyd keeps for every point an upper bound of the distance to its own centroid and a lower bound for all others
(Hamerly, 2010), and compares with the moved centroids alone where the others are known to be farther. The labels are
those of plain Lloyd, which `tests/core/test_kmeans.py` keeps beside it.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from stages.core.seeding import SeedOrder, seed_order
from stages.core.vectors import CELLS, as_pair, as_vectors, assign, chunks, nearest_centroids, squared_distances

__all__ = ["Clusters", "SeedOrder", "assign", "kmeans", "lloyd", "seed_order"]

log = logging.getLogger(__name__)

# Bounds are sums of rounded numbers: one decides only where it holds by more than this fraction.
SLACK = 1e-9


@dataclass(frozen=True)
class Clusters:
    """`inertia` is the sum of squared distances to the own centroid; `converged`: no label would change any more."""

    labels: Int64[np.ndarray, " n"]
    centroids: Float32[np.ndarray, "k d"]
    inertia: float
    iterations: int
    converged: bool


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
    sums = torch.zeros((int(changed.sum()), x.shape[1]), dtype=torch.float64, device=x.device)
    for part in chunks(len(members), x.shape[1], 2**21):
        rows = members[part]
        sums.index_add_(0, slots[labels[rows]], x[rows].double())
    counts = torch.bincount(slots[labels[members]], minlength=len(sums))
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


class Bounds:
    """Lloyd's labels; for every point an upper bound of the distance to its centroid, a lower one for all others."""

    def __init__(self, x: Tensor, centroids: Tensor, labels: Tensor, nearest: bool, cells: int) -> None:
        self.x, self.compared, self.labels, self.cells = x, centroids.clone(), labels, cells
        self.everyone = torch.arange(len(x), device=x.device)
        self.upper = squared_distances(x, self.everyone, centroids, labels).sqrt()
        # A point's nearest centroid bounds all others too; without that promise nothing is known.
        self.lower = self.upper.clone() if nearest else torch.full_like(self.upper, -torch.inf)

    def reassign(self, centroids: Float32[Tensor, "k d"]) -> None:
        """Labels every point with its nearest centroid, ties to the lowest index."""
        clusters = torch.arange(len(centroids), device=self.x.device)
        drift = squared_distances(centroids, clusters, self.compared, clusters).sqrt()
        self.compared = centroids.clone()
        shrunk = self.lower - drift.max()
        self.upper += drift[self.labels]
        rows = torch.nonzero(self.upper * (1 + SLACK) >= shrunk)[:, 0]
        own = squared_distances(self.x, rows, centroids, self.labels[rows])
        self.upper[rows] = own.sqrt()
        undecided = self.upper[rows] * (1 + SLACK) >= shrunk[rows]
        rows, own = rows[undecided], own[undecided]
        known, self.lower = self.lower[rows], shrunk
        # Centroids that rested lost against the own one before; they still do unless the own one moved away.
        farther = (self.upper[rows] * (1 + SLACK) >= known) & ((drift[self.labels[rows]] > 0) | torch.isinf(known))
        unbounded = torch.full_like(known[farther], torch.inf)
        self.compare(rows[farther], own[farther], centroids, clusters, unbounded)
        self.compare(rows[~farther], own[~farther], centroids, torch.nonzero(drift)[:, 0], known[~farther])

    def compare(
        self,
        rows: Int64[Tensor, " row"],
        exact: Float64[Tensor, " row"],
        centroids: Float32[Tensor, "k d"],
        clusters: Int64[Tensor, " some"],
        others: Float64[Tensor, " row"],
    ) -> None:
        """Compares rows with these clusters; `exact` is the own distance squared, `others` bounds all further ones."""
        self.lower[rows] = others
        if not len(rows) or not len(clusters):
            return
        own = self.labels[rows]
        places = torch.full((len(centroids),), -1, device=rows.device)
        places[clusters] = torch.arange(len(clusters), device=rows.device)
        found = nearest_centroids(
            self.x, centroids[clusters], rows, limits=exact, skipped=places[own], cells=self.cells
        )
        best = clusters[found.positions.clamp_min(0)]
        better = (found.distances < exact) | ((found.distances == exact) & (best < own))
        # What is left behind bounds the point from below: the former own centroid too, where the label changes.
        behind = torch.where(better, torch.minimum(exact, found.second), found.first)
        self.lower[rows] = torch.minimum(others, behind.sqrt())
        self.upper[rows] = torch.where(better, found.distances, exact).sqrt()
        self.labels[rows] = torch.where(better, best, own)


def lloyd(
    features: np.ndarray | Tensor,
    centroids: np.ndarray | Tensor,
    assignment: np.ndarray | Tensor,
    max_iterations: int,
    *,
    nearest: bool = False,
    cells: int = CELLS,
) -> Clusters:
    """The clusters after Lloyd's iterations (means, then nearest centroids), until labels stay or `max_iterations`.

    Starts from the means of `assignment`; `nearest=True` promises that this is the nearest of `centroids` for each
    point, ties to the lowest index, as `assign` and `seed_order` give it, and spares the first full comparison. No
    cluster is empty at the end. ValueError for NaN, for arrays that do not fit together, for points too much alike.
    """
    x, c = as_pair(features, centroids)
    labels = as_labels(assignment, len(x), len(c)).to(x.device)
    if max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations}; allowed is 1 or more")
    bounds = Bounds(x, c, labels, nearest, cells)
    c = c.clone()
    bounds.lower[fill_empty(x, labels, c)] = -torch.inf
    changed, converged = torch.ones(len(c), dtype=torch.bool, device=x.device), False
    for iterations in range(1, max_iterations + 1):
        before = labels.clone()
        c = update_means(x, labels, c, changed)
        bounds.reassign(c)
        bounds.lower[fill_empty(x, labels, c)] = -torch.inf
        switched = labels != before
        log.debug("iteration %d: %d of %d labels changed", iterations, int(switched.sum()), len(x))
        if converged := not switched.any():
            break
        changed = torch.zeros_like(changed).index_fill_(0, torch.cat([labels[switched], before[switched]]), True)
    inertia = squared_distances(x, bounds.everyone, c, labels).sum().item()
    return Clusters(labels.cpu().numpy(), c.cpu().numpy(), inertia, iterations, converged)


def kmeans(
    features: np.ndarray | Tensor, k: int, seed: int, max_iterations: int = 300, *, cells: int = CELLS
) -> Clusters:
    """k clusters: k-means++ seeds, then Lloyd until no label changes."""
    x = as_vectors(features)
    seeds = seed_order(x, k, seed, [k], cells=cells)
    start = x[torch.from_numpy(seeds.order).to(x.device)]
    return lloyd(x, start, seeds.nearest[k], max_iterations, nearest=True, cells=cells)
