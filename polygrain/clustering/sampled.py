"""k-means of a drawn sample, and then one pass that gives every row to the nearest centroid found there.

The sample is clustered exactly; for `COARSE` clusters and more it is first parted into coarse cells, and each cell is
clustered alone. Of several processes each has a share of the sample; the centroids are in all of them, but where there
are so many that cells come first: there each has those of its own cells, and looks at everyone's rows. What is lost is
told from the inertias per row. The centroids that k-means of all rows would find cost the sample what they cost all
rows, up to the error of a sample; those sought in the sample cost no more there (as far as both stop equally near to
their best). So the sample's inertia less that error is below what all rows could have, and the inertia that they do
have is too high by no more than what lies between.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.clustering.lloyd import Clusters, kmeans, lloyd
from polygrain.compute import processes
from polygrain.compute.blocks import blocks
from polygrain.compute.distributed import Distributed, turns
from polygrain.compute.vectors import as_vectors, group_sums, squared_distances

# From so many clusters on the sample is parted into coarse cells first.
COARSE = 65_536
ROWS = 65_536
# Where all processes see a block, each holds it several times while it is exchanged.
SEEN = 16_384
# Standard errors between an estimate and the end of its 95% interval.
MARGIN = 1.96

Near = Callable[[Float32[np.ndarray, "row d"]], Int64[np.ndarray, " row"]]


@dataclass(frozen=True)
class Assigned:
    """Of every row its cluster and its squared distance `costs` to the centroid; the sum of each cluster's rows.

    `sums` begin with the cluster `first`: of several processes each may have some of the clusters.
    """

    labels: Int64[np.ndarray, " n"]
    costs: Float64[np.ndarray, " n"]
    sums: Float64[np.ndarray, "cluster dim"]
    first: int = 0


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

    A cell gets clusters in proportion to its rows, at least one and at most as many as it has distinct rows. Of several
    processes each gives the rows of its share, takes some of the cells, and is told the labels of its rows and the
    centroids of its cells. ValueError for fewer clusters than cells, and for points too much alike.
    """
    x = as_vectors(features)
    n, count = processes.total(len(x)), len(centroids)
    if not count <= k <= n:
        raise ValueError(f"k = {k} clusters in {count} cells of {n} points; allowed is {count} to {n}")
    processes.require(count, "coarse cells")
    cells = lloyd(x, centroids, assignment, max_iterations, nearest=True)
    owners = processes.gather_array(cells.labels)
    members = np.split(np.argsort(owners, kind="stable"), np.bincount(owners, minlength=count).cumsum()[:-1])
    mine = processes.share(count)
    parts = vectors_of(x, members)
    distinct = np.array(
        [len(np.unique(part.cpu().numpy(), axis=0)) for part in map(parts, range(mine.start, mine.stop))]
    )
    counts = apportion(np.array([len(rows) for rows in members]), processes.gather_array(distinct), k)
    offsets, found = counts.cumsum() - counts, []
    for cell in range(mine.start, mine.stop):
        with processes.alone():
            found.append(kmeans(parts(cell), int(counts[cell]), seed + cell, max_iterations, exchanges=0))
    own = [offset + part.labels for offset, part in zip(offsets[mine], found, strict=True)]
    labels = np.empty(n, np.int64)
    labels[np.concatenate(members)] = processes.gather_array(np.concatenate(own))
    facts = processes.gather_array(np.array([(part.inertia, part.iterations, part.converged) for part in found]))
    return Clusters(
        labels[processes.share(n)],
        np.concatenate([part.centroids for part in found]),
        sum(facts[:, 0].tolist()),
        cells.iterations + int(facts[:, 1].max()),
        bool(facts[:, 2].all()),
    )


def vectors_of(x: Float32[Tensor, "n d"], members: list[np.ndarray]) -> Callable[[int], Tensor]:
    """The rows of each cell of this process, by its number; those of several processes are exchanged here."""
    if processes.count() == 1:
        return lambda cell: x[torch.from_numpy(members[cell]).to(x.device)]
    everyone, held, mine = Distributed(x.cpu().numpy()), {}, processes.share(len(members))
    for source in range(processes.count()):
        theirs = processes.share(len(members), source)
        block = everyone[np.concatenate(members[theirs])]
        if source == processes.rank():
            edges = np.cumsum([len(rows) for rows in members[mine]])[:-1]
            held = dict(enumerate(np.split(block, edges), mine.start))
    return lambda cell: torch.from_numpy(held[cell]).to(x.device)


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


def assign_apart(
    read: Callable[[slice], tuple[np.ndarray, np.ndarray]],
    n: int,
    centroids: Float32[np.ndarray, "cluster d"],
    near: Near,
    *,
    rows: int = SEEN,
) -> Assigned:
    """`assign` where each process has some of the `centroids`, and `near` numbers these; clusters are in its order.

    A block holds rows of all processes. Each finds its own nearest centroid for all of them; the nearest of these wins
    a row (ties: the first), and sums it.
    """
    mine, centres = processes.share(n), torch.from_numpy(centroids)
    firsts = np.cumsum([0, *processes.gather_array(np.array([len(centroids)]))])
    labels, costs = np.empty(mine.stop - mine.start, np.int64), np.empty(mine.stop - mine.start)
    sums = torch.zeros((len(centroids), read(slice(0, 1))[0].shape[1]), dtype=torch.float64)
    for part in turns(mine, n, rows):
        length = part.stop - part.start
        # A turn may have none of this process's rows; no reader is asked for nothing.
        held = [values[:length] for values in read(part if length else slice(0, 1))]
        known, vectors = (as_vectors(processes.gather_array(values)) for values in held)
        found, everyone = torch.from_numpy(near(vectors.numpy())), torch.arange(len(vectors))
        offered = processes.gather_array(squared_distances(vectors, everyone, centres, found).numpy()[None])
        winners = offered.argmin(0)
        numbers = processes.gather_array(found.numpy()[None]) + firsts[:-1, None]
        lengths = processes.gather_array(np.array([length]))
        here = lengths[: processes.rank()].sum() + np.arange(length)
        own = slice(part.start - mine.start, part.stop - mine.start)
        labels[own], costs[own] = numbers[winners[here], here], offered[winners[here], here]
        won = torch.from_numpy(np.flatnonzero(winners == processes.rank()))
        with processes.alone():
            sums += group_sums(known, won, found[won], len(centroids))
    first = int(firsts[processes.rank()])
    return Assigned(processes.gather_array(labels), processes.gather_array(costs), sums.numpy(), first)


def loss(costs: Float64[np.ndarray, " n"], sample: Int64[np.ndarray, " row"]) -> Loss:
    """What a sample's centroids may lose on all rows, from the squared distances of all of them."""
    own = costs[sample]
    error = float(own.std() * ((1 - len(own) / len(costs)) / len(own)) ** 0.5)
    least = float(own.mean()) - MARGIN * error
    found = float(costs.mean())
    return Loss(found, float(own.mean()), error, found / least - 1 if least > 0 else float("inf"))
