"""Exact k-means++ seeds (Arthur and Vassilvitskii, 2007), drawn in blocks.

Each seed is drawn with probability proportional to D2, the squared distance to the nearest seed so far. The plain way
passes over all points once for every seed. Here one matrix product serves a whole block of seeds; the tests hold both
ways beside each other.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from stages.core.clustering.screen import Screen
from stages.core.compute.vectors import as_vectors, check_count, squared_distances

# Seeds drawn between two updates of D2: as many as there are already, within these limits.
FIRST, BLOCK = 32, 1024


@dataclass(frozen=True)
class SeedOrder:
    """Seeds in the order drawn; the first k of them are a k-means++ start of their own for every k.

    A record is a point and the position of a seed that came nearer to it than all seeds before. Records stand in order
    of position, so they tell every point's nearest seed for every k: `nearest_seeds` reads it from them.
    """

    order: Int64[np.ndarray, " k"]
    records: Int64[np.ndarray, "record 2"]


def nearest_seeds(records: Int64[np.ndarray, "record 2"], k: int, n: int) -> Int64[np.ndarray, " n"]:
    """The position of every point's nearest among the first k seeds, from `SeedOrder.records`."""
    nearest = np.zeros(n, np.int64)
    known = records[: np.searchsorted(records[:, 1], k)]
    nearest[known[:, 0]] = known[:, 1]  # of several records of a point the last counts
    return nearest


class SeedDistances:
    """D2 of every point, the squared distance to its nearest seed, while seeds are added."""

    def __init__(self, screen: Screen, first: int) -> None:
        self.x, self.screen = screen.x, screen
        everyone = torch.arange(len(self.x), device=self.x.device)
        self.squared = squared_distances(self.x, everyone, self.x, torch.full_like(everyone, first))
        self.records = [np.empty((0, 2), np.int64)]

    def add(self, points: Int64[np.ndarray, " seed"], count: int) -> None:
        """Takes in the seeds at positions `count` and up; the first of all is known already."""
        points = points[count == 0 :]
        count = max(1, count)
        # Only a strictly nearer seed counts, and none is to a point that lies on a seed.
        rows = torch.nonzero(self.squared)[:, 0]
        if not len(points) or not len(rows):
            return
        seeds = self.x[torch.from_numpy(points).to(self.x.device)]
        found = self.screen.within(rows, seeds, self.squared[rows])
        # A point's candidates are taken in the order of the seeds: all first ones, then all second ones, and so on.
        owners = rows[found.rows]
        starts = torch.searchsorted(found.rows, found.rows)
        ranks = torch.arange(len(owners), device=rows.device) - starts
        accepted = torch.zeros_like(owners, dtype=torch.bool)
        for rank in range(int(ranks.max()) + 1 if len(ranks) else 0):
            pairs = torch.nonzero(ranks == rank)[:, 0]
            pairs = pairs[found.distances[pairs] < self.squared[owners[pairs]]]
            accepted[pairs] = True
            self.squared[owners[pairs]] = found.distances[pairs]
        records = torch.stack([owners, count + found.positions], 1)[accepted]
        self.records.append(records[torch.argsort(records[:, 1], stable=True)].cpu().numpy())


def draw_block(
    x: Float32[Tensor, "n d"], distances: Float64[np.ndarray, " n"], size: int, generator: np.random.Generator
) -> Int64[np.ndarray, " seed"]:
    """The seeds that k-means++ draws next, at most `size` of them, given the D2 of all points before the block.

    This is rejection sampling. Candidates are drawn by D2 as it was before the block. The t-th is kept with probability
    D2 now / D2 before, where "now" counts the candidates kept before it. So the kept ones have exactly the law of
    drawing one seed at a time.
    """
    cumulative = np.cumsum(distances)
    drawn, coins = generator.random((2, size))
    candidates = np.searchsorted(cumulative, drawn * cumulative[-1], side="right").clip(max=len(x) - 1)
    between, now, kept = all_distances(x[torch.from_numpy(candidates).to(x.device)]), distances[candidates], []
    thresholds = coins * now
    for t in range(size):
        if thresholds[t] < now[t]:
            kept.append(t)
            np.minimum(now, between[t], out=now)
    return candidates[kept]


def all_distances(points: Float32[Tensor, "n d"]) -> Float64[np.ndarray, "n n"]:
    """The squared distances between all points: zero exactly where they are equal."""
    centred = points.double() - points.double().mean(0)
    norms = centred.square().sum(1)
    scale = norms[:, None] + norms
    pairs = scale - 2 * centred @ centred.T
    # Products cannot tell equal points from close ones; differences can.
    i, j = torch.nonzero(pairs <= 1e-9 * scale, as_tuple=True)
    pairs[i, j] = squared_distances(points, i, points, j)
    return pairs.cpu().numpy()


def seed_order(features: np.ndarray | Tensor, k: int, seed: int, *, screen: Screen | None = None) -> SeedOrder:
    """k distinct points drawn by exact k-means++ (no greedy trials); the order for a smaller k is its beginning.

    `screen` is that of the features, for callers who have one already. ValueError for NaN, for k outside 1 to n, and
    for more seeds than distinct points.
    """
    x = as_vectors(features)
    check_count(k, len(x))
    generator = np.random.default_rng(seed)
    drawn, order, count = generator.integers(len(x), size=1), np.empty(k, np.int64), 0
    nearest = SeedDistances(screen or Screen(x), int(drawn[0]))
    while True:
        while len(drawn):
            # No piece is much larger than what is there: then few of its seeds come near the same point.
            size = min(k, 3 * max(1, count)) - count
            part, drawn = drawn[:size], drawn[size:]
            nearest.add(part, count)
            order[count : count + len(part)] = part
            count += len(part)
            if count == k:
                return SeedOrder(order, np.concatenate(nearest.records))
        now = nearest.squared.cpu().numpy()
        if not now.any():
            raise ValueError(
                f"k = {k} seeds, but only {count} of the {len(x)} points are distinct; allowed is 1 to {count}"
            )
        drawn = draw_block(x, now, min(BLOCK, max(FIRST, count)), generator)
