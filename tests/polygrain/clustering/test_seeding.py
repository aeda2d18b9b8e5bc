import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from polygrain.clustering import distances, seeding
from polygrain.clustering.seeding import nearest_seeds, seed_order
from tests.polygrain.compute.test_vectors import WORLD, draw, squared


def plain_law(points, k):
    """The probability of every order of k seeds when they are drawn one at a time."""
    between, law = squared(points, points), {}
    for order in itertools.permutations(range(len(points)), k):
        probability = 1 / len(points)
        for t in range(1, k):
            nearest = between[:, order[:t]].min(1)
            probability *= nearest[order[t]] / nearest.sum()
        law[order] = probability
    return law


def plain_left(points, k, seed):
    """The sum of D2 that k seeds leave when they are drawn one at a time."""
    generator, between = np.random.default_rng(seed), squared(points, points)
    nearest = between[generator.integers(len(points))]
    for _ in range(1, k):
        nearest = np.minimum(nearest, between[generator.choice(len(points), p=nearest / nearest.sum())])
    return nearest.sum()


def test_seed_order__has_the_law_of_one_seed_at_a_time():
    runs, law = 400, plain_law(WORLD, 3)
    counts = dict.fromkeys(law, 0)
    for seed in range(runs):
        counts[tuple(seed_order(WORLD, 3, seed).order.tolist())] += 1
    assert all(counts[order] == 0 for order, probability in law.items() if probability == 0)
    likely = [order for order, probability in law.items() if runs * probability >= 5]
    observed = [counts[order] for order in likely] + [runs - sum(counts[order] for order in likely)]
    expected = [runs * law[order] for order in likely] + [runs * (1 - sum(law[order] for order in likely))]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert chi2.sf(statistic, len(observed) - 1) > 0.001


def test_seed_order__has_the_same_law_in_blocks_of_another_size(monkeypatch):
    monkeypatch.setattr(seeding, "BLOCK", 3)
    # D2 at the end sums up all draws: its mean over runs must not depend on the block.
    points = draw(40, 2, 0)
    orders = [seed_order(points, 5, seed).order for seed in range(100)]
    left = [squared(points, points[order]).min(1).sum() for order in orders]
    single = [plain_left(points, 5, seed) for seed in range(100)]
    spread = np.sqrt((np.var(left) + np.var(single)) / 100)
    assert abs(np.mean(left) - np.mean(single)) < 3.5 * spread


def test_seed_order__begins_with_the_order_of_a_smaller_k():
    points = draw(500, 5, 0)
    longest = seed_order(points, 400, 3).order
    for k in (1, 2, 33, 100, 399):
        assert (seed_order(points, k, 3).order == longest[:k]).all()
    assert (seed_order(points, 400, 4).order != longest).any()


@pytest.mark.parametrize("levels", [None, 2])
def test_nearest_seeds__of_every_number_of_seeds(levels, monkeypatch):
    monkeypatch.setattr(distances, "TILE", 1000)
    points = draw(200, 4, 8, levels)
    seeds = seed_order(points, 70, 1)
    expected = squared(points, points[seeds.order])
    for k in range(1, 71):
        assert (nearest_seeds(seeds.records, k, 200) == expected[:, :k].argmin(1)).all()


def test_seed_order__never_takes_equal_points_twice():
    distinct = draw(50, 4, 2) + 1000
    points = np.concatenate([distinct, distinct, distinct])
    order = seed_order(points, 50, 0).order
    assert len(np.unique(points[order], axis=0)) == 50
    with pytest.raises(ValueError, match="only 50 of the 150 points"):
        seed_order(points, 51, 0)
    few = seed_order(points, 90, 0, fewer=True)
    assert sorted(few.order) == sorted(order)
    assert (nearest_seeds(few.records, 50, 150) == squared(points, points[few.order]).argmin(1)).all()


def test_seed_order__tells_points_apart_that_products_cannot():
    points = np.full((20, 3), 100, np.float32)
    points[:, 0] += np.arange(20, dtype=np.float32) * 2**-15
    assert sorted(seed_order(points, 20, 0).order) == list(range(20))
    tiny = np.arange(20, dtype=np.float32)[:, None] * np.float32(1e-30)
    assert sorted(seed_order(tiny, 20, 0).order) == list(range(20))


def test_seed_order__accepts_zero_vectors_tensors_and_read_only_arrays():
    points = draw(30, 4, 5)
    points[:7] = 0
    points.setflags(write=False)
    order = seed_order(points, 24, 0).order
    assert order.dtype == np.int64 and (order < 7).sum() == 1
    assert (seed_order(torch.tensor(points.copy()), 24, 0).order == order).all()


def test_nearest_seeds__a_share_at_a_time(monkeypatch):
    points = draw(301, 5, 0)
    records = seed_order(points, 40, 0).records
    whole = nearest_seeds(records, 25, 301)
    monkeypatch.setenv("WORLD_SIZE", "3")
    parts = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        parts.append(nearest_seeds(records, 25, 301))
    assert [len(part) for part in parts] == [100, 100, 101]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
