import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf_shrinkage

from polygrain.fisher import scatter
from polygrain.fisher.scatter import Scatter, average, ledoit_wolf, of_equal_size, within_clusters


def drawn(rows=60, width=5, clusters=22, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)) * np.arange(1, width + 1), rng.integers(0, clusters, rows)


def slow(rows, labels):
    """Row by row; and each residual as far from its mean as it would be from the true one."""
    total, residuals, clusters = np.zeros((rows.shape[1],) * 2), [], set(labels.tolist())
    for cluster in clusters:
        members = [row for row, label in zip(rows, labels, strict=True) if label == cluster]
        mean = sum(members) / len(members)
        for row in members:
            total += np.outer(row - mean, row - mean)
            if len(members) > 1:
                residuals.append((row - mean) * np.sqrt(len(members) / (len(members) - 1)))
    return total / (len(rows) - len(clusters)), np.array(residuals), len(rows) - len(clusters)


@pytest.mark.parametrize("cells", [20, 2**22])
def test_within_clusters__equals_the_sum_over_rows_and_scikit_learns_shrinkage(monkeypatch, cells):
    monkeypatch.setattr(scatter, "BLOCK_VALUES", cells)
    rows, labels = drawn()
    labels[labels == 3] = 40  # numbers may be missing
    found, (within, residuals, degrees) = within_clusters(rows, labels), slow(rows, labels)
    np.testing.assert_allclose(found.within, within, rtol=1e-10)
    assert found.degrees == degrees
    expected = ledoit_wolf_shrinkage(residuals, assume_centered=True) * len(residuals) / degrees
    assert found.shrinkage == pytest.approx(expected) and 0 < expected < 1


def test_within_clusters__all_of_one_row_say_nothing():
    found = within_clusters(drawn()[0], np.arange(60))
    assert not found.within.any() and (found.shrinkage, found.degrees) == (1.0, 0)


def test_within_clusters__a_single_pair_is_shrunk_by_half():
    rows, labels = drawn()[0][:5], np.array([0, 1, 2, 3, 3])
    found = within_clusters(rows, labels)
    assert (found.shrinkage, found.degrees) == (0.5, 1)
    np.testing.assert_allclose(found.within, np.outer(rows[3] - rows[4], rows[3] - rows[4]) / 2)


def test_ledoit_wolf__by_its_formula():
    rows = drawn(30)[0]
    covariance = sum(np.outer(row, row) for row in rows) / 30
    target = np.trace(covariance) / 5 * np.eye(5)
    error = sum(np.square(np.outer(row, row) - covariance).sum() for row in rows) / 30**2
    expected = error / np.square(covariance - target).sum()
    assert ledoit_wolf(covariance, (np.square(rows).sum(1) ** 2).sum(), 30) == pytest.approx(expected)
    assert ledoit_wolf(np.eye(5), 100.0, 30) == 0  # it is its target


def test_average__is_the_mean_of_those_that_know_something():
    one, other = Scatter(np.eye(2), 0.2, 10), Scatter(3 * np.eye(2), 0.6, 30)
    none = Scatter(np.zeros((2, 2)), 1.0, 0)
    found = average([one, none, other])
    np.testing.assert_allclose(found.within, 2 * np.eye(2))
    assert found.shrinkage == pytest.approx(0.4) and found.degrees == 20
    assert average([none, none]).degrees == 0


def test_of_equal_size__scales_the_second_and_leaves_zeros():
    one, other = Scatter(np.eye(2), 0.2, 10), Scatter(np.diag([1.0, 7.0]), 0.6, 30)
    found = of_equal_size(one, other)
    np.testing.assert_allclose(found.within, np.diag([0.25, 1.75]))
    assert (found.shrinkage, found.degrees) == (0.6, 30)
    zero = Scatter(np.zeros((2, 2)), 1.0, 0)
    np.testing.assert_array_equal(of_equal_size(zero, other).within, other.within)
    np.testing.assert_array_equal(of_equal_size(one, zero).within, zero.within)
