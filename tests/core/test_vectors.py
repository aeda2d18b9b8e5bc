import numpy as np
import pytest
import torch

from stages.core.vectors import as_vectors, chunks, group_sums, nearest_centroids, squared_distances

# Two equal points, two close ones and an outlier: distances that differ by orders of magnitude.
WORLD = np.array([[0, 0], [0, 0], [1, 0], [1, 0.5], [3, 3], [-2, 1]], np.float32)


def draw(n, d, seed, levels=None):
    points = np.random.default_rng(seed).normal(size=(n, d))
    return (points if levels is None else np.round(points * levels) / levels).astype(np.float32)


def squared(a, b):
    return ((a[:, None].astype(np.float64) - b[None].astype(np.float64)) ** 2).sum(2)


def test_squared_distances__are_exactly_zero_for_equal_rows_only():
    a = torch.from_numpy(draw(20, 5, 0) * 1e4)
    i, j = torch.meshgrid(torch.arange(20), torch.arange(20), indexing="ij")
    distances = squared_distances(a, i.flatten(), a, j.flatten()).view(20, 20)
    assert torch.equal(distances == 0, torch.eye(20, dtype=torch.bool))
    np.testing.assert_allclose(distances, squared(a.numpy(), a.numpy()), rtol=1e-6)


def test_chunks__cover_every_row_once_within_the_limit():
    for n, width, cells in [(10, 3, 7), (1, 100, 1), (17, 1, 17), (5, 9, 1)]:
        parts = list(chunks(n, width, cells))
        assert [row for part in parts for row in range(n)[part]] == list(range(n))
        assert all((part.stop - part.start) * width <= cells or part.stop - part.start == 1 for part in parts)


def test_group_sums__equal_the_plain_loop(monkeypatch):
    monkeypatch.setattr("stages.core.vectors.GATHERED", 12)  # four rows at a time
    x, rows, groups = draw(30, 3, 0), [4, 4, 0, 29, 7, 8, 9, 2, 1, 17, 3], [0, 2, 2, 0, 5, 5, 5, 5, 0, 2, 0]
    expected = np.zeros((7, 3))
    for row, group in zip(rows, groups, strict=True):
        expected[group] += x[row].astype(np.float64)
    found = group_sums(torch.from_numpy(x), torch.tensor(rows), torch.tensor(groups), 7)
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("levels", [None, 2])
def test_nearest_centroids__equal_the_plain_search_with_bounds_that_hold(levels):
    points, centroids = draw(60, 4, 1, levels), draw(9, 4, 2, levels)
    found = nearest_centroids(as_vectors(points), as_vectors(centroids), torch.arange(60), cells=50)
    distances = squared(points, centroids)
    np.testing.assert_array_equal(found.positions, distances.argmin(1))
    np.testing.assert_allclose(found.distances, distances.min(1), rtol=1e-6, atol=1e-12)
    others = np.sort(distances, 1)[:, 1]
    assert (found.second.numpy() <= others + 1e-9).all()


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.zeros(4), np.array([[np.nan]]), np.array([[1e17]])])
def test_as_vectors__raises_on_what_is_no_table_of_finite_numbers(rows):
    with pytest.raises(ValueError, match=r"of shape|hold"):
        as_vectors(rows)
