import numpy as np

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import expansion
from polygrain.retrieval.expansion import expanded, mixed, shares


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


def test_mixed__adds_the_nearest_of_all_rows(monkeypatch) -> None:
    monkeypatch.setattr(expansion, "FETCHED", 7)
    rows = unit_rows(np.random.default_rng(0).normal(size=(40, 6))).astype(np.float32)
    found = mixed(rows, 4)
    for row, met in zip(rows, found, strict=True):
        cosines = rows @ row
        others = np.argsort(-cosines)[1:5]
        expected = row + sum(max(cosines[other], 0) ** 3 * rows[other] for other in others)
        np.testing.assert_allclose(met, expected / np.linalg.norm(expected), atol=1e-6)


def test_mixed__with_fewer_rows_than_neighbours_all_are_added() -> None:
    rows = np.float32([[1, 0], [0.6, 0.8]])
    expected = unit_rows(rows + 0.216 * rows[::-1])
    np.testing.assert_allclose(mixed(rows, 10), expected, atol=1e-6)


def test_mixed__a_row_alone_or_no_neighbours_stay_as_they_are() -> None:
    rows = np.float32([[1, 0], [0.6, 0.8]])
    np.testing.assert_array_equal(mixed(rows[:1], 10), rows[:1])
    np.testing.assert_array_equal(mixed(rows, 0), rows)
