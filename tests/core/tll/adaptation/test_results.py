import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn.functional import normalize

from stages.core.tll.adaptation.recall import asymmetric_recall
from stages.core.tll.adaptation.results import Results, gain, over_runs
from stages.core.tll.adaptation.training import Training

TESTED = np.array([7, 3, 9])


def filled() -> tuple[Results, torch.Tensor, torch.Tensor]:
    left, right = normalize(torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    results = Results(2)
    results.add_run("pca", 0, TESTED, left, right)
    results.add_run("pca", 1, TESTED[::-1].copy(), left, left)
    states = []
    for runs in (2, 1):  # two groups of runs, as where not all fit into memory
        state = Training(torch.zeros(runs, 5, 4), 4, 2, 2)
        state.losses[:] = torch.arange(4.0)[:, None] + runs
        state.recalls[0], state.recalls[1] = 0.5, 0.25 * runs
        states.append(state)
    results.add_history("sigma_1", states)
    return results, left, right


def test_write__tables_hold_what_was_added(tmp_path):
    results, left, right = filled()
    results.write(tmp_path)
    recall = pq.read_table(tmp_path / "recall.parquet").to_pylist()
    first = [row["recall"] for row in recall if row["row"] == "pca" and row["run"] == 0]
    assert first == pytest.approx(asymmetric_recall(left @ right.T, [1, 2]).tolist())
    assert [row["recall"] for row in recall if row["row"] == "pca" and row["run"] == 1] == [1.0, 1.0]
    ranks = pq.read_table(tmp_path / "ranks.parquet").to_pylist()
    assert [row["pair"] for row in ranks] == [7, 3, 9, 9, 3, 7] and all(row["rank"] == 1 for row in ranks[3:])
    nearest = {row["pair"]: row["nearest"] for row in pq.read_table(tmp_path / "nearest.parquet").to_pylist()}
    order = (left @ right.T).argsort(1, descending=True)
    assert nearest == {pair: TESTED[order[i]].tolist() for i, pair in enumerate(TESTED.tolist())}


def test_add_history__best_is_the_step_of_the_highest_mean(tmp_path):
    results, _, _ = filled()
    best = [row for row in results.recall if row[1] == "best"]
    # Means over the three runs: 0.5 at step 2, (0.5 + 0.5 + 0.25) / 3 at step 4.
    assert {row[2] for row in best} == {0, 1, 2} and all(row[4] == 0.5 for row in best)
    assert [(row, step) for row, step, _, _ in results.history] == [("sigma_1", 2), ("sigma_1", 4)]
    assert results.history[0][2:] == pytest.approx((1 + 5 / 3, 0.5))
    assert results.history[1][3] == pytest.approx(1.25 / 3)


def test_spread__by_hand():
    found = over_runs(np.array([0.1, 0.2, 0.3, 0.4]))
    assert found.mean == pytest.approx(0.25)
    assert found.deviation == pytest.approx(math.sqrt(0.05 / 3))
    assert found.error == pytest.approx(found.deviation / 2)
    assert math.isnan(over_runs(np.array([0.1])).deviation)


def test_gain__by_hand():
    tested = np.array([[0, 1, 2], [0, 3, 4]])
    before = np.array([[1, 5, 2], [1, 9, 1]])
    after = np.array([[1, 1, 2], [3, 1, 1]])
    found = gain(before, after, tested, 1)
    assert found.difference == pytest.approx((1 - 1 + 1) / 6)
    assert (found.better, found.runs) == (1, 2)
    assert found.low <= found.difference <= found.high


def test_gain__interval_equals_a_plain_bootstrap():
    """Pairs are drawn with all their ranks; the plain version resamples lists of them."""
    random = np.random.default_rng(1)
    tested = np.stack([random.permutation(60)[:20] for _ in range(10)])
    before = random.integers(1, 4, tested.shape)
    after = np.where(random.random(tested.shape) < 0.4, 1, before)
    found = gain(before, after, tested, 1)
    by_pair = {p: [] for p in np.unique(tested)}
    for pair, x, y in zip(tested.ravel(), before.ravel(), after.ravel(), strict=True):
        by_pair[pair].append(int(y == 1) - int(x == 1))
    pairs, drawn = list(by_pair), []
    for _ in range(2000):
        chosen = [value for p in random.choice(pairs, len(pairs)) for value in by_pair[p]]
        drawn.append(np.mean(chosen))
    np.testing.assert_allclose([found.low, found.high], np.quantile(drawn, [0.025, 0.975]), atol=0.02)
    assert found.low > 0


def test_gain__of_nothing_is_nothing():
    tested, ranks = np.array([[0, 1]]), np.array([[1, 2]])
    assert gain(ranks, ranks, tested, 1)[:3] == (0.0, 0.0, 0.0)
