"""k-means: k-means++ seeds, exact Lloyd iterations, and exchanges between clusters where Lloyd has come to rest.

The labels are those of plain Lloyd, which the tests hold beside it. Of several processes each has the rows of its share
and their labels; all have the centroids, and take the same steps.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from polygrain.clustering.bounds import HamerlyBounds
from polygrain.clustering.exchange import exchange
from polygrain.clustering.screen import Screen
from polygrain.clustering.seeding import nearest_seeds, seed_order
from polygrain.compute import processes
from polygrain.compute.vectors import as_vectors, check_count, group_sizes, group_sums, squared_distances

# Between two rounds of exchanges the iterations go on until one changes no larger share of the labels.
NEARLY = 0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clusters:
    """`inertia` sums the squared distances to the own centroids; `converged`: no label would change any more."""

    labels: Int64[np.ndarray, " n"]
    centroids: Float32[np.ndarray, "k d"]
    inertia: float
    iterations: int
    converged: bool


def as_labels(assignment: np.ndarray | Tensor, n: int, k: int) -> Int64[Tensor, " n"]:
    """A copy of the assignment, checked to name one of k clusters for each of n points."""
    labels = torch.as_tensor(assignment, dtype=torch.int64, device="cpu").clone()
    fits = labels.shape == (n,)
    if not fits or labels.min() < 0 or labels.max() >= k:
        met = f"with values of {labels.min()} to {labels.max()}" if fits else f"of shape {tuple(labels.shape)}"
        raise ValueError(f"assignment {met}; needed is one cluster number of 0 to {k - 1} for each of the {n} points")
    return labels


def update_means(
    x: Float32[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    centroids: Float32[Tensor, "k d"],
    changed: Bool[Tensor, " k"],
) -> Float32[Tensor, "k d"]:
    """The centroids, those of the changed clusters replaced by the means of their points.

    Means are summed in float64 in the order of the points.
    """
    slots = changed.long().cumsum(0) - 1
    members = torch.nonzero(changed[labels])[:, 0]
    groups, count = slots[labels[members]], int(changed.sum())
    sums, counts = group_sums(x, members, groups, count), group_sizes(groups, count)
    means = centroids.clone()
    means[changed] = (sums / counts[:, None]).float()
    return means


def fill_empty(
    screen: Screen, labels: Int64[Tensor, " n"], centroids: Float32[Tensor, "k d"]
) -> Int64[Tensor, " point"]:
    """Gives every empty cluster a point, by changing labels and centroids in place; returns those points that are here.

    Empty clusters are filled in ascending order. Each takes the point that is farthest from its own centroid, ties to
    the lowest index. A cluster never gives away its last point.
    """
    x, k = screen.x, len(centroids)
    sizes = group_sizes(labels, k)
    empty = torch.nonzero(sizes == 0)[:, 0].tolist()
    if not empty:
        return labels[:0]
    far = squared_distances(x, screen.everyone, centroids, labels)
    # Whoever is passed over is its cluster's last point, so k points are enough.
    here = torch.argsort(far, descending=True, stable=True)[:k]
    rows, owners = processes.gather(screen.start + here), processes.gather(labels[here]).tolist()
    far, points, sizes = processes.gather(far[here]), [], sizes.tolist()
    for place in torch.argsort(far, descending=True, stable=True).tolist():
        if len(points) == len(empty) or far[place] == 0:
            break
        if sizes[owners[place]] > 1:
            sizes[owners[place]] -= 1
            points.append(place)
    if len(points) < len(empty):
        k = k - len(empty) + len(points)
        raise ValueError(
            f"{len(centroids)} clusters, but the points are too much alike for more than {k}: ask for fewer"
        )
    taken, filled = rows[torch.tensor(points, device=x.device)], torch.tensor(empty, device=x.device)
    centroids[filled] = processes.take(x, taken, screen.n)
    inside = (taken >= screen.start) & (taken < screen.start + len(x))
    mine = taken[inside] - screen.start
    labels[mine] = filled[inside]
    return mine


def descend(
    bounds: HamerlyBounds, c: Float32[Tensor, "k d"], changed: Bool[Tensor, " k"], max_iterations: int, rest: int = 0
) -> tuple[Float32[Tensor, "k d"], Bool[Tensor, " k"], int]:
    """Lloyd's iterations on the labels of `bounds`, until one changes `rest` labels at most.

    Returns the centroids, the clusters that need new means (in the beginning `changed`, none once no label would change
    any more), and how many iterations were done.
    """
    screen, labels, iterations = bounds.screen, bounds.labels, 0
    while iterations < max_iterations and changed.any():
        before = labels.clone()
        c = update_means(screen.x, labels, c, changed)
        bounds.reassign(c)
        bounds.forget(fill_empty(screen, labels, c))
        switches = switched(labels, before, len(c))
        changed, iterations = switches > 0, iterations + 1
        log.debug("iteration %d: %d of %d clusters changed", iterations, int(changed.sum()), len(c))
        if switches.sum() <= 2 * rest:
            break
    return c, changed, iterations


def switched(labels: Int64[Tensor, " n"], before: Int64[Tensor, " n"], k: int) -> Int64[Tensor, " k"]:
    """How many points each cluster won and lost, in all processes together."""
    those = labels != before
    return group_sizes(torch.cat([labels[those], before[those]]), k)


def lloyd(
    features: np.ndarray | Tensor,
    centroids: np.ndarray | Tensor,
    assignment: np.ndarray | Tensor,
    max_iterations: int,
    *,
    nearest: bool = False,
    exchanges: int = 0,
    screen: Screen | None = None,
) -> Clusters:
    """The clusters after Lloyd's iterations (means, then nearest centroids), until labels stay or `max_iterations`.

    The first means are those of `assignment`. `nearest=True` promises that it names the nearest of `centroids` for each
    point, ties to the lowest index; this spares the first comparison of all points with all centroids. Once labels
    stay, clusters are exchanged (exchange.py) up to `exchanges` times, and the iterations go on until they stay again.
    No cluster is empty at the end. `screen` is that of the features, for callers who have one already.

    ValueError for NaN, for arrays that do not fit together, and for points too much alike.
    """
    x, c = as_pair(features, centroids)
    labels = as_labels(assignment, len(x), len(c)).to(x.device)
    if max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations}; allowed is 1 or more")
    screen = screen or Screen(x)
    bounds = HamerlyBounds(screen, c, labels, nearest)
    c = c.clone()
    bounds.forget(fill_empty(screen, labels, c))
    c, changed, iterations = descend(bounds, c, torch.ones(len(c), dtype=torch.bool, device=x.device), max_iterations)
    if exchanges and not changed.any():
        c, changed, more = improve(bounds, c, max_iterations - iterations, exchanges)
        iterations += more
    far = processes.gather(squared_distances(x, screen.everyone, c, labels))
    return Clusters(
        labels.cpu().numpy().copy(), c.cpu().numpy(), far.sum().item(), iterations, converged=not changed.any()
    )


def improve(
    bounds: HamerlyBounds, c: Float32[Tensor, "k d"], max_iterations: int, exchanges: int
) -> tuple[Float32[Tensor, "k d"], Bool[Tensor, " k"], int]:
    """What rounds of exchanges make of labels at rest, as long as each lowers the inertia; returned as by `descend`.

    Between two rounds the iterations need not come to rest: the next one stirs up far more than what they leave.
    """
    screen, labels = bounds.screen, bounds.labels
    changed, iterations, least = torch.zeros(len(c), dtype=torch.bool, device=c.device), 0, np.inf
    before, means, waiting = labels, c, changed
    for number in range(exchanges + 1):
        c = update_means(screen.x, labels, c, changed)
        far = squared_distances(screen.x, screen.everyone, c, labels)
        found = processes.gather(far).sum().item()
        if found >= least:
            bounds.forget(torch.nonzero(labels != before)[:, 0])
            labels.copy_(before)
            c, changed = means, waiting
            break
        if number == exchanges or iterations == max_iterations:
            break
        before, means, waiting, least = labels.clone(), c, changed, found
        labels.copy_(exchange(screen, before, c, far, number))
        changed = switched(labels, before, len(c)) > 0
        if not changed.any():
            changed = waiting
            break
        bounds.forget(torch.nonzero(labels != before)[:, 0])
        c, changed, more = descend(bounds, c, changed, max_iterations - iterations, int(NEARLY * screen.n))
        iterations += more
    c, changed, more = descend(bounds, c, changed, max_iterations - iterations)
    return c, changed, iterations + more


def kmeans(
    features: np.ndarray | Tensor, k: int, seed: int, max_iterations: int = 300, *, exchanges: int = 1
) -> Clusters:
    """k clusters: k-means++ seeds, then Lloyd until no label changes, with `exchanges` rounds of exchanges."""
    screen = Screen(as_vectors(features))
    x = screen.x
    seeds = seed_order(x, k, seed, screen=screen)
    start = processes.take(x, torch.from_numpy(seeds.order).to(x.device), screen.n)
    nearest = nearest_seeds(seeds.records, k, screen.n)
    return lloyd(x, start, nearest, max_iterations, nearest=True, exchanges=exchanges, screen=screen)


def as_pair(features: np.ndarray | Tensor, centroids: np.ndarray | Tensor) -> tuple[Tensor, Tensor]:
    x = as_vectors(features)
    c = as_vectors(centroids, "centroids").to(x.device)
    if c.shape[1] != x.shape[1]:
        raise ValueError(f"centroids have {c.shape[1]} dimensions and features {x.shape[1]}; they must be the same")
    check_count(len(c), processes.total(len(x)))
    return x, c
