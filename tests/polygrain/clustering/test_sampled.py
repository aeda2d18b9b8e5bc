import tracemalloc

import numpy as np
import pytest

from polygrain.clustering.lloyd import kmeans, lloyd
from polygrain.clustering.sampled import apportion, assign, coarse_cells, draw, loss, two_stage
from polygrain.clustering.seeding import nearest_seeds, seed_order
from tests.helpers.torchrun import torchrun


def mixture(n, dim=8, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n // 50, dim))[rng.integers(n // 50, size=n)] + 0.5 * rng.normal(size=(n, dim))).astype(
        np.float32
    )


def by_hand(x, centroids):
    """Every row compared with every centroid, in float64."""
    distances = np.array([((centroids.astype(np.float64) - row) ** 2).sum(1) for row in x.astype(np.float64)])
    return distances.argmin(1), distances.min(1)


def plain_near(centroids):
    return lambda rows: by_hand(rows, centroids)[0]


@pytest.mark.parametrize("rows", [7, 1_000])
def test_assign__equals_comparing_every_row_with_every_centroid(rows):
    x, known = mixture(500), mixture(500, dim=3, seed=1)
    centroids = x[:20].copy()
    found = assign(lambda part: (known[part], x[part]), 500, centroids, plain_near(centroids), rows=rows)
    labels, costs = by_hand(x, centroids)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.costs, costs, rtol=1e-5, atol=1e-9)
    for cluster in range(20):
        np.testing.assert_allclose(found.sums[cluster], known[labels == cluster].sum(0, dtype=np.float64), atol=1e-5)


def test_assign__holds_a_block_and_not_all_rows():
    n, dim, rows = 100_000, 64, 1_000
    rng, centroids = np.random.default_rng(0), np.eye(4, dim, dtype=np.float32)

    def read(part):
        block = rng.random((part.stop - part.start, dim), np.float32)
        return block, block

    tracemalloc.start()
    assign(read, n, centroids, lambda block: (block @ centroids.T).argmax(1), rows=rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n * 8 < n * dim * 4 / 2, "labels, costs, copies of them at the end, and no features"


def test_loss__bounds_what_a_full_run_would_gain():
    """k-means of a tenth of the rows, and of all: all of them do better, by no more than was said."""
    x, k = mixture(2_000), 20
    full, losses, bounds = kmeans(x, k, 0, exchanges=0), [], []
    for seed in range(2):
        sample = draw(len(x), 300, seed)
        centroids = kmeans(x[sample], k, 0, exchanges=0).centroids
        found = assign(lambda part: (x[part], x[part]), len(x), centroids, plain_near(centroids))
        lost = loss(found.costs, sample)
        assert lost.all_rows == pytest.approx(found.costs.sum() / len(x)) and lost.sample < lost.all_rows
        losses.append(found.costs.sum() / full.inertia - 1)
        bounds.append(lost.at_most)
    assert all(0 < got <= bound < 1 for got, bound in zip(losses, bounds, strict=True))


def test_loss__of_all_rows_is_nothing():
    costs = np.random.default_rng(0).random(100)
    found = loss(costs, np.arange(100))
    assert found.at_most == pytest.approx(0) and found.error == 0 and found.sample == found.all_rows


def test_loss__a_larger_sample_is_bound_more_closely():
    x, k, bounds = mixture(2_000), 10, []
    for count in (50, 200, 1_000):
        sample = draw(len(x), count, 0)
        centroids = kmeans(x[sample], k, 0, exchanges=0).centroids
        costs = by_hand(x, centroids)[1]
        bounds.append(loss(costs, sample).at_most)
    assert bounds[0] > bounds[1] > bounds[2]


def test_loss__is_unbounded_where_the_sample_says_nothing():
    assert loss(np.array([0.0, 1.0, 5.0]), np.array([0])).at_most == float("inf")


def test_draw__is_ascending_distinct_and_of_the_seed():
    first = draw(1_000, 100, 3)
    assert (np.diff(first) > 0).all() and first.min() >= 0 and first.max() < 1_000 and len(first) == 100
    np.testing.assert_array_equal(first, draw(1_000, 100, 3))
    assert (first != draw(1_000, 100, 4)).any()
    np.testing.assert_array_equal(draw(50, 50, 0), np.arange(50))


def staged(x, k):
    count = coarse_cells(k)
    seeds = seed_order(x, count, 0)
    return x[seeds.order], nearest_seeds(seeds.records, count, len(x))


def test_two_stage__clusters_each_coarse_cell_alone():
    x, k = mixture(400), 16
    start, first = staged(x, k)
    found, cells = two_stage(x, start, first, k, 5, 100), lloyd(x, start, first, 100, nearest=True)
    assert len(found.centroids) == k and found.converged and set(found.labels) == set(range(k))
    offset = 0
    for cell in range(coarse_cells(k)):
        rows = np.flatnonzero(cells.labels == cell)
        count = len(set(found.labels[rows]))
        alone = kmeans(x[rows], count, 5 + cell, 100, exchanges=0)
        np.testing.assert_array_equal(found.labels[rows], offset + alone.labels)
        offset += count
    assert found.inertia == pytest.approx(((x - found.centroids[found.labels]) ** 2).sum(), rel=1e-5)


APART = """
import sys
from pathlib import Path
import numpy as np
from polygrain.clustering.sampled import assign, assign_apart, two_stage
from polygrain.compute import processes
from tests.polygrain.clustering.test_sampled import mixture, plain_near, staged

x, known, k = mixture(500), mixture(700, dim=3, seed=1), 16
everyone = mixture(700)
with processes.alone():
    start, first = staged(x, k)
mine = processes.share(len(x))
found = two_stage(x[mine], start, first[mine], k, 5, 100)
near = plain_near(found.centroids)
given = assign_apart(lambda part: (known[part], everyone[part]), 700, found.centroids, near, rows=150)
if processes.count() == 1:
    whole = assign(lambda part: (known[part], everyone[part]), 700, found.centroids, near, rows=150)
    for name in ("labels", "costs", "sums"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(given, name))
assert len(found.centroids) == len(given.sums) and given.first == sum(
    processes.gather_array(np.array([len(given.sums)])).tolist()[: processes.rank()]
)
held = len(found.centroids)
if processes.count() > 1:
    assert held < k
values = dict(
    labels=processes.gather_array(found.labels), facts=[found.inertia, found.iterations, found.converged],
    centroids=np.concatenate(list(processes.each_part(found.centroids))),
    sums=np.concatenate(list(processes.each_part(given.sums))), given=given.labels, costs=given.costs,
)
np.savez(Path(sys.argv[1]) / f"{processes.count()}-{processes.rank()}.npz", **values)
"""


@pytest.mark.slow
def test_two_stage__three_processes_hold_a_part_of_the_centroids_and_find_the_clusters_of_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(APART)
    for count in (1, 3):
        torchrun(count, program, tmp_path)
    one, *three = (np.load(tmp_path / f"{name}.npz", allow_pickle=False) for name in ("1-0", "3-0", "3-1", "3-2"))
    for found in three:
        for name in ("labels", "facts", "centroids", "given", "costs"):
            np.testing.assert_array_equal(found[name], one[name], err_msg=name)
        # Rows of all processes are summed turn by turn: another order of the same float64 values.
        np.testing.assert_allclose(found["sums"], one["sums"], rtol=1e-12, atol=1e-12)


def test_two_stage__costs_little_more_than_one():
    x, k = mixture(1_500), 25
    found = two_stage(x, *staged(x, k), k, 0, 100)
    assert by_hand(x, found.centroids)[1].sum() < 1.1 * kmeans(x, k, 0, exchanges=0).inertia


def test_two_stage__fewer_clusters_than_cells():
    x = mixture(300)
    with pytest.raises(ValueError, match="k = 3 clusters in 6 cells of 300 points; allowed is 6 to 300"):
        two_stage(x, *staged(x, 36), 3, 0, 10)


def test_two_stage__points_too_much_alike():
    x = np.repeat(mixture(50), 10, axis=0)
    with pytest.raises(ValueError, match="k = 60 clusters, but only 50 of the points are distinct"):
        two_stage(x, *staged(x, 36), 60, 0, 10)


def test_apportion__one_by_one_to_where_most_rows_share_a_cluster():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.integers(1, 40, 6)
        most = np.minimum(sizes, rng.integers(1, 40, 6))
        k = int(rng.integers(6, max(7, most.sum() + 1))) if most.sum() >= 6 else 6
        counts = apportion(sizes, most, min(k, most.sum()))
        assert counts.sum() == min(k, most.sum()) and (counts >= 1).all() and (counts <= most).all()
    assert apportion(np.array([70, 20, 10]), np.array([70, 20, 10]), 10).tolist() == [7, 2, 1]
    assert apportion(np.array([97, 2, 1]), np.array([97, 2, 1]), 3).tolist() == [1, 1, 1]
    assert apportion(np.array([90, 10]), np.array([2, 10]), 10).tolist() == [2, 8]
