import numpy as np

from polygrain.expansion import expanded, shares


def test_expanded__is_the_weighted_sum_of_unit_length() -> None:
    rows, neighbours = np.float32([[1, 0], [0, 1]]), np.float32([[[0.6, 0.8], [0.8, -0.6]], [[1, 0], [0, 1]]])
    first = np.array([1, 0]) + 0.216 * np.array([0.6, 0.8]) + 0.512 * np.array([0.8, -0.6])
    expected = [first / np.linalg.norm(first), [0, 1]]
    np.testing.assert_allclose(expanded(rows, neighbours), expected, atol=1e-6)


def test_shares__neighbours_on_the_other_side_add_nothing() -> None:
    assert not shares(np.float32([[-0.6, 0.8]]), np.float32([[[1, 0]]])).any()


def test_expanded__without_neighbours_a_row_stays() -> None:
    rows = np.float32([[0.6, 0.8]])
    np.testing.assert_allclose(expanded(rows, np.empty((1, 0, 2), np.float32)), rows)
