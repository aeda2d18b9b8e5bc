"""Exchanges between clusters that Lloyd's iterations cannot reach: one cluster is dissolved, another is split.

Dissolving a cluster sends each of its points to the second nearest centroid, which costs inertia. Splitting one lowers
the inertia by s_1 s_2 / (s_1 + s_2) |c_1 - c_2|^2, with sizes s and means c of its halves. An exchange pairs the two
where the split gains more than the other loses. No cluster takes part in two exchanges.

What a cluster loses is estimated from products in half precision. So whoever calls must run Lloyd's iterations again,
and compare the inertia with the one before.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from polygrain.clustering.screen import Screen
from polygrain.compute import processes
from polygrain.compute.blocks import blocks_within
from polygrain.compute.vectors import PAIRS, group_sizes, group_sums, squared_distances

# Clusters of fewer points on average gain too little for comparing all points with all centroids.
SMALLEST = 8


def beyond_middle(
    x: Float32[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    first: Float32[Tensor, "k d"],
    second: Float32[Tensor, "k d"],
) -> Bool[Tensor, " n"]:
    """Which points lie nearer to the second of their cluster's two centres.

    One product with the direction between the centres tells it, in place of two distances.
    """
    directions, nearer = second - first, torch.empty(len(x), dtype=torch.bool, device=x.device)
    middles = (directions * (first + second)).sum(1) / 2
    for part in blocks_within(len(x), x.shape[1], PAIRS):
        nearer[part] = (x[part] * directions.index_select(0, labels[part])).sum(1) > middles[labels[part]]
    return nearer


def largest_draws(draws: Float64[Tensor, " n"], labels: Int64[Tensor, " n"], start: int, k: int) -> Int64[Tensor, " k"]:
    """The row with the largest draw in each cluster, the last of those that tie. Rows here count from `start` on."""

    def last(draws: np.ndarray, owners: np.ndarray) -> Int64[np.ndarray, " k"]:
        """The place of each cluster's largest draw, -1 where it has none."""
        order, places = np.argsort(draws, kind="stable"), np.full(k, -1)
        places[owners[order]] = order  # of several members of a cluster the last counts, which is the largest
        return places

    here = last(draws.numpy(), labels.cpu().numpy())
    owners = np.flatnonzero(here >= 0)
    offered = (draws.numpy()[here[owners]], owners, start + here[owners])
    # Processes stand in the order of their rows, and so do draws that tie.
    best, owners, rows = (processes.gather_array(values) for values in offered)
    return torch.from_numpy(rows[last(best, owners)]).to(labels.device)


def best_splits(
    screen: Screen,
    labels: Int64[Tensor, " n"],
    centroids: Float32[Tensor, "k d"],
    far: Float64[Tensor, " n"],
    sizes: Int64[Tensor, " k"],
    seed: int,
    rounds: int = 4,
) -> tuple[Int64[Tensor, " n"], Float64[Tensor, " k"]]:
    """Which half (0 or 1) of its own cluster each point falls into, and what splitting each cluster gains.

    This is k-means with k = 2 within every cluster at once. One centre starts at a member, drawn with probability
    proportional to `far`, its squared distance. The other starts at that member's mirror image beyond the mean, so that
    the halves are of like size even where the data are noise.
    """
    x, k = screen.x, len(centroids)
    # With u uniform in 0..1, the largest of u^(1/w) falls on each member with probability proportional to its w. Its
    # logarithm log(u) / w has the same order.
    everyones = torch.rand(screen.n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    draws = everyones[screen.start : screen.start + len(x)].log() / far.cpu()
    second = processes.take(x, largest_draws(draws, labels, screen.start, k), screen.n)
    first, totals = 2 * centroids - second, centroids.double() * sizes[:, None]
    for _ in range(rounds):
        nearer = beyond_middle(x, labels, first, second)
        members = torch.nonzero(nearer)[:, 0]
        owners = labels[members]
        sums, counts = group_sums(x, members, owners, k), group_sizes(owners, k)
        second = (sums / counts.clamp_min(1)[:, None]).float()
        first = ((totals - sums) / (sizes - counts).clamp_min(1)[:, None]).float()
    everywhere = torch.arange(k, device=x.device)
    between = squared_distances(first, everywhere, second, everywhere)
    gains = counts * (sizes - counts) / sizes * between
    return nearer.long(), torch.where((counts > 0) & (counts < sizes), gains, 0.0)


def exchange(
    screen: Screen,
    labels: Int64[Tensor, " n"],
    centroids: Float32[Tensor, "k d"],
    far: Float64[Tensor, " n"],
    seed: int,
) -> Int64[Tensor, " n"]:
    """The labels after all exchanges that seem to lower the inertia; the same where none does.

    `centroids` are the means of the labels, `far` the squared distances to them, `seed` is that of the draws where
    clusters are split. A cluster that is dissolved gives its number to the half split off.
    """
    x, k = screen.x, len(centroids)
    if k < 3 or screen.n < SMALLEST * k:
        return labels
    second, loss = screen.runners_up(labels, centroids, far)
    losses = group_sums(loss[:, None], screen.everyone, labels, k)[:, 0].cpu()
    halves, gains = best_splits(screen, labels, centroids, far, group_sizes(labels, k), seed)
    # Heirs of a cluster are those that its points would go to.
    pairs = torch.unique(processes.gather(torch.unique(labels * k + second))).cpu()
    heirs = (pairs % k).split(torch.bincount(pairs // k, minlength=k).tolist())
    given = matched(gains.cpu(), losses, heirs)
    dissolved = torch.zeros(k, dtype=torch.bool)
    dissolved[given[given >= 0]] = True
    given, dissolved = given.to(x.device), dissolved.to(x.device)
    moved = torch.where(dissolved[labels], second, labels)
    return torch.where((halves == 1) & (given[labels] >= 0), given[labels], moved)


def matched(
    gains: Float64[Tensor, " k"], losses: Float64[Tensor, " k"], heirs: Sequence[Int64[Tensor, " _"]]
) -> Int64[Tensor, " k"]:
    """For every cluster the one that is dissolved so that it can be split, or -1.

    The split that gains most is paired with the dissolution that loses least, and so on, until nothing is won. Heirs of
    a dissolved cluster take part in no later exchange: their gains and losses were computed without what they receive.
    """
    k = len(gains)
    candidates = iter(torch.argsort(losses, stable=True).tolist())
    free, dissolved, given = [True] * k, torch.zeros(k, dtype=torch.bool), torch.full((k,), -1)
    for split in torch.argsort(gains, descending=True, stable=True).tolist():
        if not free[split]:
            continue
        free[split] = False
        gone = next((j for j in candidates if free[j] and not dissolved[heirs[j]].any()), None)
        if gone is None or gains[split] <= losses[gone]:
            break
        free[gone], dissolved[gone], given[split] = False, True, gone
        for heir in heirs[gone].tolist():
            free[heir] = False
    return given
