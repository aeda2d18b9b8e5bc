import numpy as np
import pytest
import torch

from polygrain.compute.vectors import as_vectors, group_sums, squared_distances, unit_rows

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


def test_group_sums__equal_the_plain_loop():
    x, groups = draw(3000, 100, 0), np.random.default_rng(0).integers(0, 6, 3000)
    expected = np.zeros((7, 100))
    for row, group in zip(x.astype(np.float64), groups, strict=True):
        expected[group] += row
    assert np.array_equal(group_sums(torch.from_numpy(x), torch.from_numpy(groups), 7).numpy(), expected)


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.zeros(4), np.array([[np.nan]]), np.array([[1e17]])])
def test_as_vectors__raises_on_what_is_no_table_of_finite_numbers(rows):
    with pytest.raises(ValueError, match=r"of shape|hold"):
        as_vectors(rows)


@pytest.mark.parametrize("rows", [draw(4, 3, 0).astype(">f4"), draw(4, 3, 0)[::-1], np.asfortranarray(draw(4, 3, 0))])
def test_as_vectors__of_any_layout(rows):
    np.testing.assert_array_equal(as_vectors(rows).numpy(), rows)


def test_unit_rows__of_unit_length_and_zeros_stay():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [-2.0, 0.0]], np.float32)
    np.testing.assert_allclose(unit_rows(rows), [[0.6, 0.8], [0, 0], [-1, 0]], rtol=1e-6)
