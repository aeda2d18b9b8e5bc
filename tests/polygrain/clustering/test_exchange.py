import numpy as np
import pytest
import torch

from polygrain.clustering.exchange import best_splits, exchange
from polygrain.clustering.lloyd import kmeans, lloyd
from polygrain.clustering.screen import Screen
from polygrain.compute.vectors import as_vectors, squared_distances
from tests.polygrain.compute.test_vectors import draw


def inertia(points, labels):
    return sum(((points[labels == j] - points[labels == j].mean(0)) ** 2).sum() for j in np.unique(labels))


def groups(count, size, spread, seed=0):
    centres = 100 * np.stack([np.arange(count), np.arange(count) ** 2 % 7], 1)
    return (np.repeat(centres, size, 0) + spread * draw(count * size, 2, seed)).astype(np.float32)


def test_exchange__repairs_two_centroids_in_one_group_and_one_in_two():
    points = groups(4, 20, 1)
    # Lloyd is at rest here: groups 0 and 1 share a centroid, group 3 has two.
    start = np.repeat([0, 0, 1, 2], 20)
    start[60:70] = 3
    rest = lloyd(points, points[[0, 40, 69, 79]], start, 100)
    assert rest.converged and inertia(points, rest.labels) > 1000
    better = lloyd(points, points[[0, 40, 69, 79]], start, 100, exchanges=1)
    assert [len(set(better.labels[i : i + 20])) for i in (0, 20, 40, 60)] == [1, 1, 1, 1]
    assert len(set(better.labels)) == 4 and better.converged
    assert better.inertia == pytest.approx(inertia(points, better.labels), rel=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_exchange__never_raises_the_inertia_and_ends_where_lloyd_rests(seed):
    points = draw(600, 6, seed) + 4 * draw(15, 6, seed + 9)[np.random.default_rng(seed).integers(15, size=600)]
    plain, better = kmeans(points, 20, seed, exchanges=0), kmeans(points, 20, seed, exchanges=4)
    assert better.inertia <= plain.inertia
    again = lloyd(points, better.centroids, better.labels, 10)
    assert (again.labels == better.labels).all() and again.iterations == 1


def test_exchange__that_raises_the_inertia_is_undone(monkeypatch):
    points = groups(6, 20, 1)
    plain = kmeans(points, 6, 0, exchanges=0)

    def bad(screen, labels, *others):
        return torch.where(labels == 1, 0, labels).index_fill(0, torch.nonzero(labels == 0)[:1, 0], 1)

    monkeypatch.setattr("polygrain.clustering.lloyd.exchange", bad)
    undone = kmeans(points, 6, 0, exchanges=3)
    assert undone.converged and undone.iterations > plain.iterations
    assert (undone.labels == plain.labels).all() and (undone.centroids == plain.centroids).all()


def test_exchange__lowers_the_mean_inertia():
    gains = []
    for seed in range(8):
        points = groups(12, 15, 3, seed)
        plain, better = (kmeans(points, 10, seed, exchanges=rounds).inertia for rounds in (0, 3))
        gains.append(1 - better / plain)
    assert np.mean(gains) > 0.1


def test_exchange__leaves_small_clusters_and_a_good_clustering_alone():
    points = groups(5, 20, 1)
    labels = torch.from_numpy(np.repeat(np.arange(5), 20))
    means = as_vectors(np.stack([points[i : i + 20].mean(0) for i in range(0, 100, 20)]))
    far = squared_distances(as_vectors(points), torch.arange(100), means, labels)
    assert (exchange(Screen(as_vectors(points)), labels, means, far, 0) == labels).all()
    few = lloyd(points, points[:30], np.arange(100) % 30, 100, exchanges=3)
    assert few.iterations == lloyd(points, points[:30], np.arange(100) % 30, 100).iterations


def test_best_splits__gain_what_the_inertia_falls_by():
    points = groups(4, 10, 2)
    labels = np.repeat([0, 1], 20)
    means = np.stack([points[labels == j].mean(0) for j in (0, 1)])
    sizes = torch.tensor([20, 20])
    x, owners, centroids = as_vectors(points), torch.from_numpy(labels), as_vectors(means)
    far = squared_distances(x, torch.arange(40), centroids, owners)
    halves, gains = best_splits(Screen(x), owners, centroids, far, sizes, 0)
    for j in (0, 1):
        split = np.where(labels == j, 2 + halves.numpy(), labels)
        assert gains[j].item() == pytest.approx(inertia(points, labels) - inertia(points, split), rel=1e-4)
        assert len(set(halves[labels == j][:10].tolist())) == 1
