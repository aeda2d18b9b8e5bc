import tracemalloc

import numpy as np
import pytest
from sklearn.decomposition import PCA

from polygrain.compute.vectors import unit_rows
from polygrain.fisher import closed_form as module
from polygrain.fisher.closed_form import Turned, basis_of, closed_form, of_views
from polygrain.fisher.layer import axes
from polygrain.fisher.scatter import average, of_equal_size, within_clusters


def rows_of(n=80, dim=12, seed=0):
    rng = np.random.default_rng(seed)
    return unit_rows((rng.normal(size=(n, dim)) * np.linspace(1, 3, dim) + 2).astype(np.float32))


ROWS, TASKS = rows_of(), np.array(["a", "b"]).repeat([30, 50])


def test_basis_of__is_the_principal_axes_of_rows_less_the_mean_of_their_task():
    rows = ROWS.copy()
    rows[30:] += 1
    found = basis_of(rows, TASKS)
    centred = np.concatenate([rows[:30] - rows[:30].mean(0), rows[30:] - rows[30:].mean(0)])
    expected = PCA().fit(centred)
    np.testing.assert_allclose(found.variances, expected.explained_variance_ * 79 / 80, rtol=1e-4)
    np.testing.assert_allclose(np.abs(found.axes.T @ expected.components_.T), np.eye(12), atol=1e-3)
    np.testing.assert_allclose(found.mean, rows.mean(0), atol=1e-6)
    np.testing.assert_allclose(found.turn(rows), rows @ found.axes, atol=1e-6)


def test_turn__makes_no_other_copy_in_float64_than_the_result(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_VALUES", 2**10)
    rows, basis = rows_of(4_000), basis_of(ROWS, TASKS, 2)
    tracemalloc.start()
    found = basis.turn(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(found, rows.astype(float) @ basis.axes, atol=1e-12)
    np.testing.assert_array_equal(Turned(rows, basis)[5:9], basis.turn(rows[5:9]))
    assert found.shape == Turned(rows, basis).shape and peak < 2 * found.nbytes


@pytest.mark.parametrize("rows", [ROWS[:1], np.repeat(ROWS[:1], 9, 0)])
def test_basis_of__rows_that_do_not_vary_have_none(rows):
    assert basis_of(rows, np.zeros(len(rows), int)) is None


@pytest.mark.parametrize("least", [0.0, 0.7])
def test_closed_form__averages_granularities_and_views_of_equal_size(least):
    basis, rng = basis_of(ROWS, TASKS), np.random.default_rng(1)
    known = [within_clusters(basis.turn(ROWS), rng.integers(0, 80 // size, 80)) for size in (2, 3)]
    views = of_views(basis, unit_rows(ROWS[:, None] + rng.normal(size=(80, 4, 12)).astype(np.float32) * 0.1))
    clusters = average(known)
    single = within_clusters(basis.turn(ROWS), np.arange(80))  # clusters of one image say nothing
    cases = [
        (known, views, average([clusters, of_equal_size(clusters, views)])),
        ([*known, single], None, clusters),
        ([single], views, views),
    ]
    for scatters, seen, scatter in cases:
        expected = basis.axes @ axes(np.diag(basis.variances), scatter, least)
        found = closed_form(basis, scatters, seen, least)
        np.testing.assert_allclose(found.projection, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.mean, ROWS.mean(0), atol=1e-6)


def test_closed_form__without_a_scatter_half_whitens():
    basis = basis_of(ROWS, np.zeros(80, int))
    ones = within_clusters(basis.turn(ROWS), np.arange(80))
    for views in (None, ones):
        turned = (ROWS - ROWS.mean(0)) @ closed_form(basis, [ones], views).projection
        np.testing.assert_allclose(np.cov(turned.T, bias=True), np.diag(basis.variances**0.5), atol=1e-5)
