"""Exact k-means++ seeds (Arthur and Vassilvitskii, 2007), drawn in blocks.

Each seed is drawn with probability proportional to D2, the squared distance to the nearest seed so far. One matrix
product per block of seeds replaces one pass over all points per seed; `tests/core/test_kmeans.py` keeps the plain way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from stages.core.vectors import CELLS, as_vectors, check_count, nearest_centroids, squared_distances

# Seeds drawn between two updates of D2: as many as there are already, within these limits.
FIRST, BLOCK = 32, 1024


@dataclass(frozen=True)
class SeedOrder:
    """Seeds in the order drawn; for each size k asked for, the position of every point's nearest seed, and its D2."""

    order: Int64[np.ndarray, " k"]
    nearest: dict[int, Int64[np.ndarray, " n"]] = field(default_factory=dict)
    distances: dict[int, Float64[np.ndarray, " n"]] = field(default_factory=dict)


def draw_block(
    x: Float32[Tensor, "n d"], distances: Float64[np.ndarray, " n"], size: int, generator: np.random.Generator
) -> Int64[np.ndarray, " seed"]:
    """The seeds that k-means++ draws next, at most `size` of them, given the D2 of all points before the block.

    Candidates come from the law of D2 as it was; the t-th is kept with probability D2 now / D2 then, where "now" counts
    the candidates kept before it. What is kept has exactly the law of drawing one seed at a time (rejection sampling).
    """
    cumulative = np.cumsum(distances)
    drawn, coins = generator.random((2, size))
    candidates = np.searchsorted(cumulative, drawn * cumulative[-1], side="right").clip(max=len(x) - 1)
    points = x[torch.from_numpy(candidates).to(x.device)]
    centred = points.double() - points.double().mean(0)
    norms = centred.square().sum(1)
    scale = norms[:, None] + norms
    pairs = scale - 2 * centred @ centred.T
    # Products cannot tell equal points from close ones; differences can.
    i, j = torch.nonzero(pairs <= 1e-9 * scale, as_tuple=True)
    pairs[i, j] = squared_distances(points, i, points, j)
    between, now, kept = pairs.cpu().numpy(), distances[candidates], []
    thresholds = coins * now
    for t in range(size):
        if thresholds[t] < now[t]:
            kept.append(t)
            np.minimum(now, between[t], out=now)
    return candidates[kept]


def seed_order(
    features: np.ndarray | Tensor,
    k: int,
    seed: int,
    sizes: Sequence[int] = (),
    *,
    block: int = BLOCK,
    cells: int = CELLS,
) -> SeedOrder:
    """k distinct points drawn by exact k-means++ (no greedy trials); the order for a smaller k is its beginning.

    `sizes` (each 1 to k) are the numbers of seeds for which nearest seeds are kept. `block` bounds how many seeds are
    drawn between two updates of D2, `cells` how many distances are held at once. ValueError for NaN, for k outside 1 to
    n, and for more seeds than distinct points.
    """
    x = as_vectors(features)
    check_count(k, len(x))
    if wrong := [size for size in sizes if not 1 <= size <= k]:
        raise ValueError(f"sizes {wrong} asked of {k} seeds; allowed is 1 to {k}: drop them or raise k")
    generator = np.random.default_rng(seed)
    everyone = torch.arange(len(x), device=x.device)
    nearest = torch.zeros_like(everyone)
    distances = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    drawn, found = generator.integers(len(x), size=1), SeedOrder(np.empty(k, np.int64))
    count, stops = 0, sorted({*sizes, k})
    while True:
        while len(drawn):
            stop = next(size for size in stops if size > count)
            part, drawn = drawn[: stop - count], drawn[stop - count :]
            seeds = x[torch.from_numpy(part).to(x.device)]
            closer = nearest_centroids(x, seeds, everyone, limits=distances, cells=cells)
            improved = closer.distances < distances
            nearest = torch.where(improved, count + closer.positions, nearest)
            distances = torch.where(improved, closer.distances, distances)
            found.order[count : count + len(part)] = part
            count += len(part)
            if count in sizes:
                found.nearest[count], found.distances[count] = nearest.cpu().numpy(), distances.cpu().numpy()
            if count == k:
                return found
        now = distances.cpu().numpy()
        if not now.any():
            raise ValueError(
                f"k = {k} seeds, but only {count} of the {len(x)} points are distinct; allowed is 1 to {count}"
            )
        drawn = draw_block(x, now, min(block, max(FIRST, count)), generator)
