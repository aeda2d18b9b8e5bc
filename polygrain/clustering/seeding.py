"""Exact k-means++ seeds (Arthur and Vassilvitskii, 2007), drawn in blocks.

Each seed is drawn with probability proportional to D2, the squared distance to the nearest seed so far. The plain way
passes over all points once for every seed; here one matrix product serves a whole block of seeds. With several
processes each holds its share of the points, and all draw the same seeds.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.clustering.distances import within
from polygrain.compute import processes
from polygrain.compute.blocks import blocks_within
from polygrain.compute.vectors import as_vectors, check_count, squared_distances

# Seeds drawn between two updates of D2: as many as there are already, within these limits.
FIRST, BLOCK = 32, 1024
# Pairs of a point and a new seed that are compared together.
PAIRS = 2**24


@dataclass(frozen=True)
class SeedOrder:
    """Seeds in the order drawn; the first k of them are a k-means++ start of their own for every k.

    A record is a point and the position of a seed that came nearer to it than all seeds before, in order of position.
    `nearest_seeds` reads every point's nearest seed for every k from them.
    """

    order: Int64[np.ndarray, " k"]
    records: Int64[np.ndarray, "record 2"]


def nearest_seeds(records: Int64[np.ndarray, "record 2"], k: int, n: int) -> Int64[np.ndarray, " n"]:
    """The position of the nearest of the first k seeds, for each of this process's share of n points."""
    share, nearest = processes.share(n), np.zeros(n, np.int64)
    points, positions = records[: np.searchsorted(records[:, 1], k)].T
    nearest[points] = positions  # of several records of a point the last one counts
    return nearest[share]


class SeedDistances:
    """D2 of this process's points while seeds are added; all processes have n points, and `start` lie before."""

    def __init__(self, x: Float32[Tensor, "n d"], n: int, first: Int64[Tensor, "1"]) -> None:
        self.x, self.n, self.start = x, n, processes.share(n).start
        everyone, seed = torch.arange(len(x), device=x.device), processes.take(x, first, n)
        self.squared = squared_distances(x, everyone, seed, torch.zeros_like(everyone))
        self.records = [np.empty((0, 2), np.int64)]

    def add(self, points: Int64[np.ndarray, " seed"], count: int) -> None:
        """Adds the seeds at positions `count` and up; the first of all was added already."""
        points = points[count == 0 :]
        count = max(1, count)
        if not len(points):
            return
        seeds = processes.take(self.x, torch.from_numpy(points).to(self.x.device), self.n)
        # A point that lies on a seed gets no nearer one.
        rows = torch.nonzero(self.squared)[:, 0]
        if not len(rows):
            return
        parts = blocks_within(len(rows), len(seeds), PAIRS)
        records = torch.cat([self.accept(rows[part], seeds, count) for part in parts])
        self.records.append(records[torch.argsort(records[:, 1], stable=True)].cpu().numpy())

    def accept(
        self, rows: Int64[Tensor, " row"], seeds: Float32[Tensor, "seed d"], count: int
    ) -> Int64[Tensor, "record 2"]:
        """Lowers D2 of some points; returns their records, those of a point in order."""
        places, positions, squares = within(self.x, rows, seeds, self.squared[rows])
        # Each point takes its candidates in the order of the seeds: all first ones, then all second ones, and so on.
        owners = rows[places]
        ranks = torch.arange(len(owners), device=rows.device) - torch.searchsorted(places, places)
        accepted = torch.zeros_like(owners, dtype=torch.bool)
        for rank in range(int(ranks.max()) + 1 if len(ranks) else 0):
            pairs = torch.nonzero(ranks == rank)[:, 0]
            pairs = pairs[squares[pairs] < self.squared[owners[pairs]]]
            accepted[pairs] = True
            self.squared[owners[pairs]] = squares[pairs]
        return torch.stack([self.start + owners, count + positions], 1)[accepted]


def draw_block(
    x: Float32[Tensor, "n d"], distances: Float64[np.ndarray, " n"], size: int, generator: np.random.Generator
) -> Int64[np.ndarray, " seed"]:
    """The seeds that k-means++ draws next, at most `size` of them, from D2 of the points of all processes.

    This is rejection sampling. Candidates are drawn by D2 as it was before the block. The t-th is kept with probability
    D2 now / D2 before, where "now" counts the candidates kept before it. So the kept ones have exactly the law of
    drawing one seed at a time. Empty where D2 is zero everywhere.
    """
    cumulative = np.cumsum(distances)
    if not cumulative[-1]:
        return np.empty(0, np.int64)
    drawn, coins = generator.random((2, size))
    candidates = np.searchsorted(cumulative, drawn * cumulative[-1], side="right").clip(max=len(distances) - 1)
    points = processes.take(x, torch.from_numpy(candidates).to(x.device), len(distances))
    between, now = all_distances(points), distances[candidates]
    thresholds, accepted = coins * now, []
    for t in range(size):
        if thresholds[t] < now[t]:
            accepted.append(t)
            np.minimum(now, between[t], out=now)
    return candidates[accepted]


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


def seed_order(features: np.ndarray | Tensor, k: int, seed: int, fewer: bool = False) -> SeedOrder:
    """k distinct points drawn by exact k-means++ (no greedy trials); the order for a smaller k is its beginning.

    ValueError for NaN, for k outside 1 to n, and for more seeds than distinct points, unless `fewer` are taken then.
    """
    x = as_vectors(features)
    n = processes.total(len(x))
    check_count(k, n)
    generator = np.random.default_rng(seed)
    drawn, order, count = generator.integers(n, size=1), np.empty(k, np.int64), 0
    nearest = SeedDistances(x, n, torch.from_numpy(drawn).to(x.device))
    while count < k:
        if not len(drawn):
            distances = processes.gather(nearest.squared).cpu().numpy()
            drawn = draw_block(x, distances, min(BLOCK, max(FIRST, count)), generator)
        if not len(drawn) and fewer:
            break
        if not len(drawn):
            raise ValueError(f"k = {k} seeds, but only {count} of the {n} points are distinct; allowed is 1 to {count}")
        # No piece is much larger than the seeds so far: then few of its seeds come near the same point.
        size = min(k, 3 * max(1, count)) - count
        part, drawn = drawn[:size], drawn[size:]
        nearest.add(part, count)
        order[count : count + len(part)] = part
        count += len(part)
    records = processes.gather_array(np.concatenate(nearest.records))
    return SeedOrder(order[:count], records[np.argsort(records[:, 1], kind="stable")])
