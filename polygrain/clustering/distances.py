"""Exact nearest centroids, as fast as matrix products.

A float32 product of all pairs selects the candidates: its rounding error is bounded, so no nearest centroid is missed.
Squared distances of the candidates, from the differences, then decide. So no result depends on blocks or on threads.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.compute import device
from polygrain.compute.blocks import blocks_within
from polygrain.compute.vectors import squared_distances

# Products held at once: 8 MiB of float32, which stay in the cache while they are compared.
TILE = 2**21


def products(
    x: Float32[Tensor, "n d"], rows: Int64[Tensor, " row"], centroids: Float32[Tensor, "k d"]
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """For each block of `rows`: |x - c|^2 - |x|^2 of all pairs, by products; |x|^2; and how far off their sum may be.

    All vectors are moved by the mean of the centroids first, which makes the error small.
    """
    k, d = centroids.shape
    shift = centroids.mean(0)
    moved = centroids - shift
    norms = moved.square().sum(1)
    for part in blocks_within(len(rows), max(k, d), device.roomy(TILE, x.device, 64)):
        block = x.index_select(0, rows[part]).sub_(shift)
        own = torch.linalg.vector_norm(block, dim=1).square()
        with device.exact():
            tile = torch.addmm(norms, block, moved.T, alpha=-2)
        # A float32 sum of d products, in any order; the last term is for numbers too small to be normal ones.
        error = (d + 16) * (2.0**-23 * (own.sqrt() + norms.max().sqrt()).square() + 2.0**-120)
        yield part, tile, own, error


def nearest_centroids(
    x: Float32[Tensor, "n d"], rows: Int64[Tensor, " row"], centroids: Float32[Tensor, "k d"]
) -> tuple[Int64[Tensor, " row"], Float64[Tensor, " row"]]:
    """The nearest centroid of some rows, ties to the lowest number, and its squared distance."""
    labels, squares = torch.empty_like(rows), torch.empty(len(rows), dtype=torch.float64, device=x.device)
    for part, tile, _, error in products(x, rows, centroids):
        i, j = torch.nonzero(tile <= (tile.amin(1) + 2 * error)[:, None], as_tuple=True)
        pairs = squared_distances(x, rows[part][i], centroids, j)
        squares[part] = torch.full_like(squares[part], torch.inf).scatter_reduce(0, i, pairs, "amin")
        nearest = pairs == squares[part][i]
        labels[part] = torch.full_like(labels[part], len(centroids)).scatter_reduce(0, i[nearest], j[nearest], "amin")
    return labels, squares


def within(
    x: Float32[Tensor, "n d"],
    rows: Int64[Tensor, " row"],
    centroids: Float32[Tensor, "k d"],
    limits: Float64[Tensor, " row"],
) -> tuple[Int64[Tensor, " pair"], Int64[Tensor, " pair"], Float64[Tensor, " pair"]]:
    """Pairs of a row (by its place in `rows`) and a centroid whose squared distance is at most the row's limit.

    They are ordered by row, then by centroid; with their squared distances.
    """
    places, numbers = [rows[:0]], [rows[:0]]
    for part, tile, own, error in products(x, rows, centroids):
        i, j = torch.nonzero(tile <= (limits[part] - own + error).float()[:, None], as_tuple=True)
        places.append(part.start + i)
        numbers.append(j)
    i, j = torch.cat(places), torch.cat(numbers)
    squares = squared_distances(x, rows[i], centroids, j)
    inside = squares <= limits[i]
    return i[inside], j[inside], squares[inside]
