"""k-means: k-means++ seeds, then Lloyd's iterations, exactly.

With several processes each holds its share of the rows and their labels; all hold the centroids.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from polygrain.clustering.distances import nearest_centroids, within
from polygrain.clustering.seeding import nearest_seeds, seed_order
from polygrain.compute import processes
from polygrain.compute.vectors import as_vectors, check_count, group_sizes, group_sums, squared_distances

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clusters:
    """`inertia` sums the squared distances to the own centroids; `converged`: no label would change any more."""

    labels: Int64[np.ndarray, " n"]
    centroids: Float32[np.ndarray, "k d"]
    inertia: float
    iterations: int
    converged: bool


def means(x: Float32[Tensor, "n d"], labels: Int64[Tensor, " n"], k: int) -> Float32[Tensor, "k d"]:
    """The mean of each cluster's rows, summed in float64; no cluster is empty."""
    sums = group_sums(x, labels, k)
    return (sums / group_sizes(labels, k)[:, None]).float()


def fill_empty(
    x: Float32[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    squares: Float64[Tensor, " n"],
    centroids: Float32[Tensor, "k d"],
) -> None:
    """Gives every empty cluster a point, by changing labels, squared distances and centroids in place.

    Empty clusters are filled in ascending order. Each takes the point that is farthest from its own centroid, ties to
    the lowest index. A cluster never gives away its last point.
    """
    k = len(centroids)
    sizes = group_sizes(labels, k)
    empty = torch.nonzero(sizes == 0)[:, 0].tolist()
    if not empty:
        return
    n = processes.total(len(x))
    share, owners, far = processes.share(n), processes.gather(labels).tolist(), processes.gather(squares)
    left: list[int] = sizes.tolist()
    points: list[int] = []
    for point in torch.argsort(far, descending=True, stable=True).tolist():
        if len(points) == len(empty) or far[point] == 0:
            break
        if left[owners[point]] > 1:
            left[owners[point]] -= 1
            points.append(point)
    if len(points) < len(empty):
        allowed = k - len(empty) + len(points)
        raise ValueError(f"{k} clusters, but the points are too much alike for more than {allowed}: ask for fewer")
    taken, filled = torch.tensor([points, empty], device=x.device)
    centroids[filled] = processes.take(x, taken, n)
    here = (taken >= share.start) & (taken < share.stop)
    labels[taken[here] - share.start], squares[taken[here] - share.start] = filled[here], 0.0


def reassign(
    x: Float32[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    squares: Float64[Tensor, " n"],
    centroids: Float32[Tensor, "k d"],
    moved: Bool[Tensor, " k"],
) -> None:
    """Gives every row its nearest centroid, by changing labels and squared distances in place.

    A row whose own centroid has not moved is compared only with those that have.
    """
    numbers, resting = torch.nonzero(moved)[:, 0], torch.nonzero(~moved[labels])[:, 0]
    moving = torch.nonzero(moved[labels])[:, 0]
    labels[moving], squares[moving] = nearest_centroids(x, moving, centroids)
    if not len(resting) or not len(numbers):
        return
    rows, places, distances = within(x, resting, centroids[numbers], squares[resting])
    nearest = squares[resting].scatter_reduce(0, rows, distances, "amin")
    ties = distances == nearest[rows]
    own = torch.where(squares[resting] == nearest, labels[resting], len(centroids))
    labels[resting] = own.scatter_reduce(0, rows[ties], numbers[places[ties]], "amin")
    squares[resting] = nearest


def lloyd(
    features: np.ndarray | Tensor, centroids: np.ndarray | Tensor, assignment: np.ndarray | Tensor, max_iterations: int
) -> Clusters:
    """The clusters after Lloyd's iterations (means, then nearest centroids), until labels stay or `max_iterations`.

    The first means are those of `assignment`; `centroids` serve where it leaves clusters empty. No cluster is empty at
    the end. ValueError for NaN, and for points too much alike.
    """
    x = as_vectors(features)
    c = as_vectors(centroids, "centroids").to(x.device).clone()
    labels = torch.as_tensor(assignment, dtype=torch.int64).to(x.device, copy=True)
    n, k = processes.total(len(x)), len(c)
    check_count(k, n)
    everyone = torch.arange(len(x), device=x.device)
    squares, compared = squared_distances(x, everyone, c, labels), torch.full_like(c, torch.nan)
    fill_empty(x, labels, squares, c)
    for iteration in range(1, max_iterations + 1):
        before, c = labels.clone(), means(x, labels, k)
        reassign(x, labels, squares, c, (c != compared).any(1))
        compared = c.clone()
        fill_empty(x, labels, squares, c)
        changed = processes.total(int((labels != before).sum()))
        log.debug("iteration %d: %d labels changed", iteration, changed)
        if not changed:
            break
    inertia = processes.gather(squares).sum().item()
    return Clusters(labels.cpu().numpy(), c.cpu().numpy(), inertia, iteration, converged=not changed)


def kmeans(features: np.ndarray | Tensor, k: int, seed: int, max_iterations: int = 300) -> Clusters:
    """k clusters: k-means++ seeds, then Lloyd's iterations until no label changes."""
    x = as_vectors(features)
    n, seeds = processes.total(len(x)), seed_order(x, k, seed)
    start = processes.take(x, torch.from_numpy(seeds.order).to(x.device), n)
    return lloyd(x, start, nearest_seeds(seeds.records, k, n), max_iterations)
