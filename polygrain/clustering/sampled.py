"""Clusters of very many rows: cluster a part of them, then give every row to the nearest centroid."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from polygrain.clustering.distances import nearest_centroids
from polygrain.compute import device, processes
from polygrain.compute.blocks import Rows, blocks
from polygrain.compute.vectors import as_vectors, group_sums

BLOCK_ROWS = 65_536
# Cells that are drawn, about. Few large cells separate fewer rows from their nearest; many small ones are more varied.
DRAWN = 20


@dataclass(frozen=True)
class Assigned:
    """Of every row its cluster and its squared distance to the centroid; of every cluster the sum of its rows."""

    labels: Int64[np.ndarray, " n"]
    squares: Float64[np.ndarray, " n"]
    sums: Float64[np.ndarray, "cluster dim"]


def draw(n: int, count: int, seed: int) -> Int64[np.ndarray, " row"]:
    """`count` of n rows, in ascending order."""
    return np.sort(np.random.default_rng([seed, n]).choice(n, count, replace=False, shuffle=False)).astype(np.int64)


def draw_cells(vectors: Rows, count: int, seed: int) -> Int64[np.ndarray, " row"]:
    """`count` of the rows, in ascending order, that lie together: whole cells of rows with the same nearest centre.

    Single rows drawn at random would lie farther apart than all rows do, and small clusters would be lost. Centres are
    rows drawn at random, and cells are drawn in a random order; of the last one the rows nearest to its centre count.
    """
    n = vectors.shape[0]
    centres = np.asarray(vectors[draw(n, min(n, -(-DRAWN * n // count)), seed)], np.float32)

    def read(part: slice) -> tuple[np.ndarray, np.ndarray]:
        rows = np.asarray(vectors[part], np.float32)
        return rows[:, :1], rows

    cells = assign(read, n, centres)
    order = np.random.default_rng([seed, n, len(centres)]).permutation(len(centres))
    rank = np.argsort(order)[cells.labels]
    return np.sort(np.lexsort((cells.squares, rank))[:count])


def assign(
    read: Callable[[slice], tuple[np.ndarray, np.ndarray]],
    n: int,
    centroids: Float32[np.ndarray, "k d"],
    rows: int = BLOCK_ROWS,
) -> Assigned:
    """Gives each of n rows to its nearest centroid, block by block; each process takes its share of the rows.

    `read` gives the summed rows of a slice, `row dim`, and the compared vectors, `row d`.
    """
    where, labels, squares = device.best(), [], []
    c = torch.from_numpy(centroids).to(where)
    sums = torch.zeros((len(c), read(slice(0, 1))[0].shape[1]), dtype=torch.float64, device=where)
    for part in blocks(processes.share(n), rows):
        summed, compared = (as_vectors(values).to(where) for values in read(part))
        owners, distances = nearest_centroids(compared, torch.arange(len(compared), device=where), c)
        labels.append(owners.cpu().numpy())
        squares.append(distances.cpu().numpy())
        with processes.alone():
            sums += group_sums(summed, owners, len(c))
    processes.add_up([sums])
    everyone = [processes.gather_array(np.concatenate(parts)) for parts in (labels, squares)]
    return Assigned(everyone[0], everyone[1], sums.cpu().numpy())
