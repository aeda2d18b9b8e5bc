"""Exact k-means++ seeds (Arthur and Vassilvitskii, 2007), drawn in blocks.

Each seed is drawn with probability proportional to D2, the squared distance to the nearest seed so far. The plain way
passes over all points once for every seed. Here one matrix product serves a whole block of seeds; the tests hold both
ways beside each other. Of several processes each has the points of its share; all draw the same seeds from all points.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.clustering.screen import Screen
from polygrain.compute import processes
from polygrain.compute.blocks import Rows, blocks, blocks_within
from polygrain.compute.vectors import as_vectors, check_count, group_sizes, squared_distances

# Seeds drawn between two updates of D2: as many as there are already, within these limits.
FIRST, BLOCK = 32, 1024
# Pairs of a point and a new seed that are looked at together.
PAIRS = 2**24
# Records held at once beside those of the process's own points.
RECORDS = 2**20


@dataclass(frozen=True)
class SeedOrder:
    """Seeds in the order drawn; the first k of them are a k-means++ start of their own for every k.

    A record is a point and the position of a seed that came nearer to it than all seeds before. Records stand in order
    of position, so they tell every point's nearest seed for every k: `nearest_seeds` reads it from them. Here are those
    of this process's points; `all_records` has everyone's.
    """

    order: Int64[np.ndarray, " k"]
    records: Int64[np.ndarray, "record 2"]


def nearest_seeds(records: Rows, k: int, n: int) -> Int64[np.ndarray, " n"]:
    """The position of the nearest among the first k seeds for every one of n points, from `SeedOrder.records`.

    Of several processes each gets those of its share of the points.
    """
    mine = processes.share(n)
    nearest = np.zeros(mine.stop - mine.start, np.int64)
    for part in blocks(records.shape[0], RECORDS):
        points, positions = records[part].T
        known = (positions < k) & (points >= mine.start) & (points < mine.stop)
        nearest[points[known] - mine.start] = positions[known]  # of several records of a point the last counts
        if positions[-1] >= k:
            break
    return nearest


def all_records(seeds: SeedOrder) -> Iterator[Int64[np.ndarray, "record 2"]]:
    """The records of all processes, in the order of one process's, some positions at a time."""
    if processes.count() == 1:
        yield seeds.records
        return
    k = len(seeds.order)
    ends = group_sizes(torch.from_numpy(seeds.records[:, 1]), k).cumsum(0).numpy()
    done = first = 0
    while done < ends[-1]:
        last = max(first + 1, int(np.searchsorted(ends, done + RECORDS, side="right")))
        here = slice(*np.searchsorted(seeds.records[:, 1], (first, last)))
        found = processes.gather_array(seeds.records[here])
        yield found[np.argsort(found[:, 1], kind="stable")]
        first, done = last, ends[last - 1]


class SeedDistances:
    """D2 of every point, the squared distance to its nearest seed, while seeds are added."""

    def __init__(self, screen: Screen, first: Int64[Tensor, "1"]) -> None:
        self.x, self.screen = screen.x, screen
        seed = processes.take(self.x, first, screen.n)
        self.squared = squared_distances(self.x, screen.everyone, seed, torch.zeros_like(screen.everyone))
        self.records = [np.empty((0, 2), np.int64)]

    def add(self, points: Int64[np.ndarray, " seed"], count: int) -> None:
        """Takes in the seeds at positions `count` and up; the first of all is known already."""
        points = points[count == 0 :]
        count = max(1, count)
        if not len(points):
            return
        seeds = processes.take(self.x, torch.from_numpy(points).to(self.x.device), self.screen.n)
        # Only a strictly nearer seed counts, and none is to a point that lies on a seed.
        rows = torch.nonzero(self.squared)[:, 0]
        if not len(rows):
            return
        added = [self.accept(rows[part], seeds, count) for part in blocks_within(len(rows), len(seeds), PAIRS)]
        records = torch.cat(added)
        self.records.append(records[torch.argsort(records[:, 1], stable=True)].cpu().numpy())

    def accept(
        self, rows: Int64[Tensor, " row"], seeds: Float32[Tensor, "seed d"], count: int
    ) -> Int64[Tensor, "record 2"]:
        """Takes in seeds for some points; returns their records, those of a point in order."""
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
        return torch.stack([self.screen.start + owners, count + found.positions], 1)[accepted]


def draw_block(
    x: Float32[Tensor, "n d"], distances: Float64[np.ndarray, " n"], n: int, size: int, generator: np.random.Generator
) -> Int64[np.ndarray, " seed"]:
    """The seeds that k-means++ draws next, at most `size` of them, given the D2 of all n points before the block.

    This is rejection sampling. Candidates are drawn by D2 as it was before the block. The t-th is kept with probability
    D2 now / D2 before, where "now" counts the candidates kept before it. So the kept ones have exactly the law of
    drawing one seed at a time. Empty where D2 is zero everywhere.
    """
    cumulative, total = np.empty_like(distances), torch.zeros(1, dtype=torch.float64)

    def go_on(total: Tensor) -> None:
        cumulative[:] = np.cumsum(np.append(total.numpy(), distances))[1:]
        total[:] = float(cumulative[-1]) if len(cumulative) else total

    processes.in_turn(total, go_on)
    whole = float(processes.from_last(total))
    if not whole:
        return np.empty(0, np.int64)
    drawn, coins = generator.random((2, size))
    # In every process as many points lie before a candidate as have sums up to what was drawn.
    before = torch.from_numpy(np.searchsorted(cumulative, drawn * whole, side="right"))
    processes.add_up([before])
    candidates = before.clamp_max(n - 1)
    points = processes.take(x, candidates.to(x.device), n)
    between, now = all_distances(points), processes.take(torch.from_numpy(distances), candidates, n).numpy()
    thresholds, kept = coins * now, []
    for t in range(size):
        if thresholds[t] < now[t]:
            kept.append(t)
            np.minimum(now, between[t], out=now)
    return candidates.numpy()[kept]


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
    screen = screen or Screen(x)
    n = screen.n
    check_count(k, n)
    generator = np.random.default_rng(seed)
    drawn, order, count = generator.integers(n, size=1), np.empty(k, np.int64), 0
    nearest = SeedDistances(screen, torch.from_numpy(drawn).to(x.device))
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
        drawn = draw_block(x, nearest.squared.cpu().numpy(), n, min(BLOCK, max(FIRST, count)), generator)
        if not len(drawn):
            raise ValueError(f"k = {k} seeds, but only {count} of the {n} points are distinct; allowed is 1 to {count}")
