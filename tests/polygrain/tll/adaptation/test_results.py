import math

import numpy as np
import pytest

from polygrain.tll.adaptation.results import gain, over_runs


def test_spread__by_hand():
    result = over_runs(np.array([0.1, 0.2, 0.3, 0.4]))
    assert result.mean == pytest.approx(0.25)
    assert result.deviation == pytest.approx(math.sqrt(0.05 / 3))
    assert result.error == pytest.approx(result.deviation / 2)
    assert math.isnan(over_runs(np.array([0.1])).deviation)


def test_gain__by_hand():
    tested = np.array([[0, 1, 2], [0, 3, 4]])
    before, after = np.array([[1, 5, 2], [1, 9, 1]]), np.array([[1, 1, 2], [3, 1, 1]])
    result = gain(before, after, tested, 1)
    assert result.difference == pytest.approx((1 - 1 + 1) / 6)
    assert (result.better, result.runs) == (1, 2)
    assert result.low <= result.difference <= result.high
    assert gain(before, before, tested, 1)[:3] == (0.0, 0.0, 0.0)


def test_gain__interval_equals_a_plain_bootstrap():
    """Pairs are drawn with all their ranks; the plain version resamples lists of them."""
    random = np.random.default_rng(1)
    tested = np.stack([random.permutation(60)[:20] for _ in range(10)])
    before = random.integers(1, 4, tested.shape)
    after = np.where(random.random(tested.shape) < 0.4, 1, before)
    result = gain(before, after, tested, 1)
    by_pair = {p: [] for p in np.unique(tested)}
    for pair, x, y in zip(tested.ravel(), before.ravel(), after.ravel(), strict=True):
        by_pair[pair].append(int(y == 1) - int(x == 1))
    pairs, drawn = list(by_pair), []
    for _ in range(2000):
        chosen = [value for p in random.choice(pairs, len(pairs)) for value in by_pair[p]]
        drawn.append(np.mean(chosen))
    np.testing.assert_allclose([result.low, result.high], np.quantile(drawn, [0.025, 0.975]), atol=0.02)
    assert result.low > 0
