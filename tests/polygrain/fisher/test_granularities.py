import numpy as np
import pytest

from polygrain.fisher.closed_form import basis_of, closed_form, of_views
from polygrain.fisher.granularities import (
    Granularities,
    read_basis,
    read_scatters,
    write_basis,
    write_scatter,
)
from polygrain.fisher.scatter import within_clusters
from tests.polygrain.fisher.test_closed_form import ROWS, TASKS

LABELS = {"size2": np.arange(80) // 2, "k10": np.arange(80) % 10}
VIEWS = ROWS.reshape(20, 4, 12)


GIVEN = Granularities(np.arange(80), TASKS, LABELS)


@pytest.mark.parametrize("views", [VIEWS, None, VIEWS[:0]])
def test_fit__is_the_closed_form_of_the_clusters_and_views(views):
    basis = basis_of(ROWS, TASKS)
    clusters = [within_clusters(basis.turn(ROWS), labels) for labels in LABELS.values()]
    seen = of_views(basis, VIEWS) if views is VIEWS else None
    expected = closed_form(basis, clusters, seen)
    np.testing.assert_allclose(GIVEN.fit(ROWS, views).projection, expected.projection, atol=1e-6)


def test_fit__from_what_was_written_is_the_same(tmp_path):
    basis = basis_of(ROWS, TASKS)
    write_basis(basis, tmp_path)
    for name, labels in LABELS.items():
        (tmp_path / name).mkdir()
        write_scatter(within_clusters(basis.turn(ROWS), labels), tmp_path / name)
    known = read_basis(tmp_path), read_scatters(tmp_path, [*LABELS])
    stored, fitted = GIVEN.fit(ROWS, None, known), GIVEN.fit(ROWS, None)
    np.testing.assert_allclose(stored.projection, fitted.projection, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(stored.mean, fitted.mean)


def test_fit__gives_no_layer_without_a_granularity_or_of_equal_rows(tmp_path):
    assert Granularities(np.arange(80), TASKS, {}).fit(ROWS, VIEWS) is None
    assert GIVEN.fit(np.repeat(ROWS[:1], 80, 0), None) is None
    assert read_basis(tmp_path) is None
