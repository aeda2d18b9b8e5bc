import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from polygrain.fisher.layer import axes
from polygrain.fisher.scatter import Scatter
from tests.polygrain.fisher.test_scatter import drawn


def parts(rows, labels):
    """Total scatter and that within, both for each row."""
    within = np.zeros((rows.shape[1],) * 2)
    for cluster in set(labels.tolist()):
        members = rows[labels == cluster]
        within += (members - members.mean(0)).T @ (members - members.mean(0))
    return np.cov(rows.T, bias=True), within / len(rows)


def directions(layer):
    """Columns of unit length, whose largest entry is positive."""
    unit = layer / np.linalg.norm(layer, axis=0)
    return unit * np.sign(np.take_along_axis(unit, np.abs(unit).argmax(0)[None], 0))


def test_axes__are_the_directions_of_scikit_learns_discriminant():
    rows, labels = drawn(200, 6, 4)
    rows += np.random.default_rng(1).normal(size=(4, 6))[labels] * 3
    total, within = parts(rows, labels)
    found = axes(total, Scatter(within, 0.0, 196))
    expected = LinearDiscriminantAnalysis(solver="eigen").fit(rows, labels).scalings_[:, :3]
    assert found.shape == (6, 3)  # four clusters differ along three axes
    np.testing.assert_allclose(directions(found), directions(expected), atol=1e-4)


@pytest.mark.parametrize(("shrinkage", "least"), [(0.3, 0.0), (0.1, 0.8)])
def test_axes__equal_the_plain_eigenvectors_scaled_axis_by_axis(shrinkage, least):
    rows, labels = drawn(100, 6, 30)
    total, within = parts(rows, labels)
    share = max(shrinkage, least)
    shrunk = (1 - share) * within + share * np.trace(within) / 6 * np.eye(6)
    values, vectors = np.linalg.eig(np.linalg.inv(shrunk) @ total)
    expected = []
    for i in np.argsort(-values):
        psi = values[i] - 1
        if psi <= 0:
            continue
        u = vectors[:, i] / np.sqrt(vectors[:, i] @ shrunk @ vectors[:, i])
        shorter = u / np.sqrt(1 + 0.05 * psi)
        psi = psi / (1 + 0.05 * psi)
        expected.append(shorter * np.sqrt(psi / (1 + psi)))
    found = axes(total, Scatter(within, shrinkage, 70), least)
    expected = np.stack(expected, 1)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-4)
    np.testing.assert_allclose(directions(found), directions(expected), atol=1e-4)
    np.testing.assert_array_equal(axes(total, Scatter(within, shrinkage, 70), least, 2), found[:, :2])


def test_axes__weigh_by_the_share_of_the_scatter_that_is_between():
    psi = np.array([3.0, 0.5])
    found = axes(np.diag(1 + psi), Scatter(np.eye(2), 0.0, 50))
    shorter = psi / (1 + 0.05 * psi)
    np.testing.assert_allclose((found @ found.T).diagonal(), shorter / (1 + shorter) / (1 + 0.05 * psi), rtol=1e-6)


def test_axes__without_a_cluster_of_two_no_direction_matters_less():
    total = np.diag([4.0, 2.0, 0.1])
    found = axes(total, Scatter(np.zeros((3, 3)), 1.0, 0))
    np.testing.assert_allclose(np.abs(directions(found)), np.eye(3)[:, : found.shape[1]], atol=1e-6)


def test_axes__where_nothing_is_told_apart_all_axes_stay():
    total = np.diag([4.0, 2.0])
    assert axes(total, Scatter(2 * total, 0.0, 10)).shape == (2, 2)


def test_axes__of_equal_rows_are_refused():
    with pytest.raises(ValueError, match="all rows are equal"):
        axes(np.zeros((2, 2)), Scatter(np.eye(2), 0.0, 10))
