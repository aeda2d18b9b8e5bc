import numpy as np
import pytest
import torch

from polygrain.clustering import distances
from polygrain.clustering.distances import nearest_centroids, within
from polygrain.compute.vectors import as_vectors, squared_distances
from tests.polygrain.compute.test_vectors import draw, squared

# Products of close, of equal, of huge and of tiny numbers; and vectors far from the origin.
WORLDS = [(1, None, 0), (1, 2, 0), (1e12, None, 0), (1e-12, None, 0), (1e-30, None, 0), (1, None, 1000)]


def world(scale, levels, offset, d=7):
    x, centroids = (draw(n, d, n, levels) * np.float32(scale) + np.float32(offset) for n in (120, 40))
    pairs = torch.cartesian_prod(torch.arange(120), torch.arange(40)).T
    x, centroids = as_vectors(x), as_vectors(centroids)
    return x, centroids, squared_distances(x, pairs[0], centroids, pairs[1]).view(120, 40).numpy()


@pytest.mark.parametrize(("scale", "levels", "offset"), WORLDS)
@pytest.mark.parametrize("tile", [1, 700, 2**22])
def test_nearest_centroids__equals_comparing_all_pairs(scale, levels, offset, tile, monkeypatch):
    monkeypatch.setattr(distances, "TILE", tile)
    x, centroids, expected = world(scale, levels, offset)
    rows = torch.arange(5, 120, 2)
    labels, squares = nearest_centroids(x, rows, centroids)
    np.testing.assert_array_equal(labels, expected[rows].argmin(1))
    np.testing.assert_array_equal(squares, expected[rows].min(1))


@pytest.mark.parametrize(("scale", "levels", "offset"), WORLDS)
def test_within__finds_all_pairs_up_to_the_limit(scale, levels, offset):
    x, centroids, expected = world(scale, levels, offset)
    limits = np.sort(expected, 1)[np.arange(120), np.arange(120) % 4]  # some centroids lie exactly at the limit
    i, j, squares = within(x, torch.arange(120), centroids, torch.from_numpy(limits))
    rows, columns = np.nonzero(expected <= limits[:, None])
    np.testing.assert_array_equal(i, rows)
    np.testing.assert_array_equal(j, columns)
    np.testing.assert_array_equal(squares, expected[rows, columns])


def test_nearest_centroids__compares_few_pairs_twice(monkeypatch):
    """The bound of the products' error is close: few candidates are left in many dimensions, too."""
    counted = []
    exact = squared_distances
    monkeypatch.setattr(distances, "squared_distances", lambda *pairs: counted.append(len(pairs[1])) or exact(*pairs))
    x, centroids = draw(500, 384, 0), draw(100, 384, 1)
    labels, _ = nearest_centroids(as_vectors(x), torch.arange(500), as_vectors(centroids))
    np.testing.assert_array_equal(labels, squared(x, centroids).argmin(1))
    assert sum(counted) < 1.1 * 500
