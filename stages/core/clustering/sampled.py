"""k-means of a drawn sample, and then one pass that gives every row to the nearest centroid found there.

The sample is clustered exactly; for `COARSE` clusters and more it is first parted into coarse cells, and each cell is
clustered alone. What is lost is told from the inertias per row. The centroids that k-means of all rows would find cost
the sample what they cost all rows, up to the error of a sample; those sought in the sample cost no more there (as far
as both stop equally near to their best). So the sample's inertia less that error is below what all rows could have, and
the inertia that they do have is too high by no more than what lies between.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from stages.core.clustering.lloyd import Clusters, kmeans, lloyd
from stages.core.compute import processes
from stages.core.compute.blocks import blocks
from stages.core.compute.vectors import as_vectors, group_sums, squared_distances

# From so many clusters on the sample is parted into coarse cells first.
COARSE = 65_536
ROWS = 65_536
# Standard errors between an estimate and the end of its 95% interval.
MARGIN = 1.96

Near = Callable[[Float32[np.ndarray, "row d"]], Int64[np.ndarray, " row"]]


@dataclass(frozen=True)
class Assigned:
    """Of every row its cluster and its squared distance `costs` to the centroid; the sum of each cluster's rows."""

    labels: Int64[np.ndarray, " n"]
    costs: Float64[np.ndarray, " n"]
    sums: Float64[np.ndarray, "k dim"]


@dataclass(frozen=True)
class Loss:
    """Inertias per row: of all rows, and of the sample with its standard error.

    `at_most`: by what share the inertia of all rows may exceed that of k-means on all of them (infinite where the
    sample is too small to say).
    """

    all_rows: float
    sample: float
    error: float
    at_most: float


def draw(n: int, count: int, seed: int) -> Int64[np.ndarray, " row"]:
    """`count` of n rows, in ascending order."""
    return np.sort(np.random.default_rng([seed, n]).choice(n, count, replace=False, shuffle=False)).astype(np.int64)


def coarse_cells(k: int) -> int:
    """So many cells that there are as many of them as clusters in each."""
    return max(1, round(k**0.5))


def two_stage(
    features: np.ndarray | Tensor,
    centroids: np.ndarray | Tensor,
    assignment: np.ndarray | Tensor,
    k: int,
    seed: int,
    max_iterations: int,
) -> Clusters:
    """k clusters: Lloyd from the few `centroids` (nearest as in `assignment`), then k-means inside each of the cells.

    A cell gets clusters in proportion to its rows, at least one and at most as many as it has distinct rows. ValueError
    for fewer clusters than cells, and for points too much alike.
    """
    x = as_vectors(features)
    if not len(centroids) <= k <= len(x):
        raise ValueError(
            f"k = {k} clusters in {len(centroids)} cells of {len(x)} points; allowed is {len(centroids)} to {len(x)}"
        )
    cells = lloyd(x, centroids, assignment, max_iterations, nearest=True)
    members = [np.flatnonzero(cells.labels == cell) for cell in range(len(centroids))]
    distinct = np.array([len(np.unique(x[torch.from_numpy(rows)].cpu().numpy(), axis=0)) for rows in members])
    counts = apportion(np.array([len(rows) for rows in members]), distinct, k)
    labels, found, offset = np.empty(len(x), np.int64), [], 0
    for cell, (rows, count) in enumerate(zip(members, counts.tolist(), strict=True)):
        part = kmeans(x[torch.from_numpy(rows).to(x.device)], count, seed + cell, max_iterations, exchanges=0)
        labels[rows] = offset + part.labels
        offset += count
        found.append(part)
    return Clusters(
        labels,
        np.concatenate([part.centroids for part in found]),
        sum(part.inertia for part in found),
        cells.iterations + max(part.iterations for part in found),
        all(part.converged for part in found),
    )


def apportion(
    sizes: Int64[np.ndarray, " cell"], most: Int64[np.ndarray, " cell"], k: int
) -> Int64[np.ndarray, " cell"]:
    """k clusters shared among cells: one each, the others one by one to the cell with the most rows per cluster."""
    if k > most.sum():
        raise ValueError(f"k = {k} clusters, but only {most.sum()} of the points are distinct: ask for fewer")
    # All at once as far as shares are whole, and one by one for the rest.
    counts = np.clip(np.floor(sizes * (k / sizes.sum())).astype(np.int64), 1, most)
    while (left := k - counts.sum()) != 0:
        if left > 0:
            counts[np.argmax(np.where(counts < most, sizes / counts, -1))] += 1
        else:
            counts[np.argmin(np.where(counts > 1, sizes / counts, np.inf))] -= 1
    return counts


def assign(
    read: Callable[[slice], tuple[np.ndarray, np.ndarray]],
    n: int,
    centroids: Float32[np.ndarray, "k d"],
    near: Near,
    *,
    rows: int = ROWS,
) -> Assigned:
    """Gives each of n rows to a centroid, in one pass over blocks of `rows` rows; each process takes a part.

    `read` gives of a slice what is summed, `row dim`, and the vectors that are compared, `row d`. `near` numbers the
    nearest centroid of each vector. Held are a block, the sums, and two numbers for each row.
    """
    mine, centres = processes.share(n), torch.from_numpy(centroids)
    labels, costs = np.empty(mine.stop - mine.start, np.int64), np.empty(mine.stop - mine.start)
    sums = torch.zeros((len(centroids), read(slice(0, 1))[0].shape[1]), dtype=torch.float64)
    for part in blocks(mine, rows):
        known, vectors = (as_vectors(values) for values in read(part))
        found = torch.from_numpy(near(vectors.numpy()))
        own = slice(part.start - mine.start, part.stop - mine.start)
        everyone = torch.arange(len(found))
        labels[own], costs[own] = found.numpy(), squared_distances(vectors, everyone, centres, found).numpy()
        with processes.alone():
            sums += group_sums(known, everyone, found, len(centroids))
    processes.add_up([sums])
    return Assigned(processes.gather_array(labels), processes.gather_array(costs), sums.numpy())


def loss(costs: Float64[np.ndarray, " n"], sample: Int64[np.ndarray, " row"]) -> Loss:
    """What a sample's centroids may lose on all rows, from the squared distances of all of them."""
    own = costs[sample]
    error = float(own.std() * ((1 - len(own) / len(costs)) / len(own)) ** 0.5)
    least = float(own.mean()) - MARGIN * error
    found = float(costs.mean())
    return Loss(found, float(own.mean()), error, found / least - 1 if least > 0 else float("inf"))
