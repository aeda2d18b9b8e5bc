"""Exact k-means++ seeds (Arthur and Vassilvitskii, 2007), drawn in blocks.

Each seed is drawn with probability proportional to D2, the squared distance to the nearest seed so far. One matrix
product per block of seeds replaces one pass over all points per seed; `tests/core/test_seeding.py` keeps the plain way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from stages.core.clustering.screen import Screen
from stages.core.compute.vectors import CELLS, as_vectors, check_count, squared_distances

# Seeds drawn between two updates of D2: as many as there are already, within these limits.
FIRST, BLOCK = 32, 1024


@dataclass(frozen=True)
class SeedOrder:
    """Seeds in the order drawn; for each size k asked for, the position of every point's nearest seed, and its D2.

    `records` tells the same of every size: each row is a point and the position of the seed that came nearer to it than
    all before, in order of position. `nearest_seeds` reads it.
    """

    order: Int64[np.ndarray, " k"]
    records: Int64[np.ndarray, "record 2"]
    nearest: dict[int, Int64[np.ndarray, " n"]] = field(default_factory=dict)
    distances: dict[int, Float64[np.ndarray, " n"]] = field(default_factory=dict)


class Nearest:
    """The nearest of the seeds so far, for every point."""

    def __init__(self, screen: Screen, first: int, cells: int) -> None:
        self.x, self.screen, self.cells = screen.x, screen, cells
        x = screen.x
        self.positions = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        self.distances = squared_distances(x, torch.arange(len(x), device=x.device), x, self.positions + first)
        self.records = [np.empty((0, 2), np.int64)]

    def add(self, points: Int64[np.ndarray, " seed"], count: int) -> None:
        """Takes in the seeds at positions `count` and up; the first of all is known already."""
        points = points[count == 0 :]
        count = max(1, count)
        # To come nearer is to be strictly nearer: no seed does to a point that lies on one.
        rows = torch.nonzero(self.distances)[:, 0]
        if not len(points) or not len(rows):
            return
        seeds = self.x[torch.from_numpy(points).to(self.x.device)]
        found = self.screen.within(rows, seeds, self.distances[rows], cells=self.cells)
        owners = rows[found.rows]
        starts = torch.searchsorted(found.rows, found.rows)
        ranks = torch.arange(len(owners), device=rows.device) - starts
        accepted = torch.zeros_like(owners, dtype=torch.bool)
        for rank in range(int(ranks.max()) + 1 if len(ranks) else 0):
            pairs = torch.nonzero(ranks == rank)[:, 0]
            pairs = pairs[found.distances[pairs] < self.distances[owners[pairs]]]
            accepted[pairs] = True
            self.distances[owners[pairs]] = found.distances[pairs]
            self.positions[owners[pairs]] = count + found.positions[pairs]
        records = torch.stack([owners, count + found.positions], 1)[accepted]
        self.records.append(records[torch.argsort(records[:, 1], stable=True)].cpu().numpy())


def nearest_seeds(records: Int64[np.ndarray, "record 2"], k: int, n: int) -> Int64[np.ndarray, " n"]:
    """The position of every point's nearest among the first k seeds, from `SeedOrder.records`."""
    nearest = np.zeros(n, np.int64)
    known = records[: np.searchsorted(records[:, 1], k)]
    nearest[known[:, 0]] = known[:, 1]  # of several records of a point the last counts
    return nearest


def draw_block(
    x: Float32[Tensor, "n d"], distances: Float64[np.ndarray, " n"], size: int, generator: np.random.Generator
) -> Int64[np.ndarray, " seed"]:
    """The seeds that k-means++ draws next, at most `size` of them, given the D2 of all points before the block.

    Survivors come from the law of D2 as it was; the t-th is kept with probability D2 now / D2 then, where "now" counts
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
    screen: Screen | None = None,
) -> SeedOrder:
    """k distinct points drawn by exact k-means++ (no greedy trials); the order for a smaller k is its beginning.

    `sizes` (each 1 to k) are the numbers of seeds for which nearest seeds are kept. `block` bounds how many seeds are
    drawn between two updates of D2, `cells` how many distances are held at once; `screen`: that of the features, where
    there is one already. ValueError for NaN, for k outside 1 to n, and for more seeds than distinct points.
    """
    x = as_vectors(features)
    check_count(k, len(x))
    if wrong := [size for size in sizes if not 1 <= size <= k]:
        raise ValueError(f"sizes {wrong} asked of {k} seeds; allowed is 1 to {k}: drop them or raise k")
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(x), size=1)
    nearest, count, stops = Nearest(screen or Screen(x), int(drawn[0]), cells), 0, sorted({*sizes, k})
    order, kept = np.empty(k, np.int64), SeedOrder(np.empty(0, np.int64), np.empty((0, 2), np.int64))
    while True:
        while len(drawn):
            # No piece is much larger than what is there: then few of its seeds come near the same point.
            stop = min(next(size for size in stops if size > count), 3 * max(1, count))
            part, drawn = drawn[: stop - count], drawn[stop - count :]
            nearest.add(part, count)
            order[count : count + len(part)] = part
            count += len(part)
            if count in sizes:
                kept.nearest[count] = nearest.positions.cpu().numpy().copy()
                kept.distances[count] = nearest.distances.cpu().numpy().copy()
            if count == k:
                return SeedOrder(order, np.concatenate(nearest.records), kept.nearest, kept.distances)
        now = nearest.distances.cpu().numpy()
        if not now.any():
            raise ValueError(
                f"k = {k} seeds, but only {count} of the {len(x)} points are distinct; allowed is 1 to {count}"
            )
        drawn = draw_block(x, now, min(block, max(FIRST, count)), generator)
