import numpy as np
import pytest
import torch

from polygrain.clustering.lloyd import kmeans, lloyd
from polygrain.clustering.seeding import nearest_seeds, seed_order
from tests.polygrain.compute.test_vectors import draw, squared


def assign(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The nearest centroid by comparing each point with all of them; ties go to the lowest index."""
    differences = np.asarray(points, np.float64)[:, None] - np.asarray(centroids, np.float64)
    return np.square(differences).sum(2).argmin(1)


def plain_lloyd(points, labels, k, max_iterations):
    """Means, then nearest of all centroids, until nothing changes; None where a cluster runs empty."""
    for done in range(max_iterations):
        centroids = np.stack([points[labels == j].mean(0, dtype=np.float64) for j in range(k)]).astype(np.float32)
        new = squared(points, centroids).argmin(1)
        if len(np.unique(new)) < k:
            return None
        if (new == labels).all() or done + 1 == max_iterations:
            return new, centroids, done + 1
        labels = new


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_kmeans__raises_on_values_that_are_not_finite(value):
    points = draw(10, 3, 0)
    points[4, 1] = value
    for call in (lambda: seed_order(points, 2, 0), lambda: kmeans(points, 2, 0)):
        with pytest.raises(ValueError, match=rf"{value} in row 4"):
            call()


@pytest.mark.parametrize("seed", range(12))
def test_lloyd__equals_plain_lloyd_label_for_label(seed):
    n, d, k = [(300, 4, 8), (200, 2, 60), (150, 6, 140), (400, 10, 3)][seed % 4]
    points = draw(n, d, seed, levels=4 if seed % 3 == 0 else None) + (100 if seed % 3 == 1 else 0)
    k = min(k, len(np.unique(points, axis=0)))
    seeds = seed_order(points, k, seed)
    # Any assignment will do; a drawn one moves most centroids for several iterations.
    drawn = np.random.default_rng(seed).integers(0, k, n)
    first = drawn if k <= 8 and seed % 2 else nearest_seeds(seeds.records, k, n)
    compared = 0
    for max_iterations in (1, 2, 5, 100):
        ours = lloyd(points, points[seeds.order], first, max_iterations)
        if (plain := plain_lloyd(points, first, k, max_iterations)) is None:
            continue
        compared += 1
        assert (ours.labels == plain[0]).all() and ours.iterations == plain[2]
        assert ours.converged or max_iterations < 100
        np.testing.assert_array_equal(ours.centroids, plain[1])
        assert ours.inertia == pytest.approx(squared(points, ours.centroids)[np.arange(n), ours.labels].sum(), rel=1e-6)
    assert compared


def test_lloyd__breaks_ties_to_the_lowest_index():
    points = np.array([[-1, 0], [1, 0], [0, 5], [0, 0]], np.float32)
    assert assign(points, np.array([[1, 0], [-1, 0]], np.float32)).tolist() == [1, 0, 0, 0]
    clusters = lloyd(points[[0, 1, 3]], points[:2], np.array([0, 1, 0]), 1)
    assert clusters.labels.tolist() == [0, 1, 0]


def test_lloyd__fills_empty_clusters_with_the_farthest_points():
    points = np.array([[0], [1], [10], [2], [30]], np.float32)
    clusters = lloyd(points, np.array([[1], [50], [60]], np.float32), np.zeros(5, np.int64), 100)
    # 30 and then 10 are farthest from the first centroid.
    assert clusters.labels.tolist() == [0, 0, 2, 0, 1]
    assert clusters.centroids.ravel().tolist() == [1, 30, 10]


@pytest.mark.parametrize("max_iterations", [1, 2, 100])
def test_lloyd__leaves_no_cluster_empty(max_iterations):
    repaired = 0
    for seed in range(20):
        points = draw(40, 2, seed, levels=2)
        k = len(np.unique(points, axis=0)) - 1
        centroids = draw(k, 2, seed + 1000)
        start = assign(points, centroids)
        repaired += len(np.unique(start)) < k
        clusters = lloyd(points, centroids, start, max_iterations)
        assert (np.bincount(clusters.labels, minlength=k) > 0).all()
        if clusters.converged:
            assert (assign(points, clusters.centroids) == clusters.labels).all()
    assert repaired


def test_lloyd__raises_where_points_are_too_much_alike():
    points = np.array([[0, 0], [0, 0], [1, 1], [1, 1]], np.float32)
    with pytest.raises(ValueError, match="too much alike for more than 2"):
        lloyd(points, points[:3], np.array([0, 0, 2, 2]), 10)


def test_kmeans__of_one_cluster_is_the_mean():
    points = draw(50, 3, 0)
    clusters = kmeans(points, 1, 0)
    np.testing.assert_allclose(clusters.centroids[0], points.mean(0), atol=1e-6)
    assert clusters.inertia == pytest.approx(((points - points.mean(0)) ** 2).sum(), rel=1e-5)
    assert (clusters.labels == 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kmeans__is_the_same_on_a_gpu():
    points = torch.from_numpy(draw(2000, 32, 0))
    here, there = kmeans(points, 100, 0), kmeans(points.cuda(), 100, 0)
    assert (here.labels == there.labels).all()
