import numpy as np
import pytest

from polygrain.fisher.closed_form import Plan, basis_of, closed_form, of_views
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


def granularities(plan):
    return Granularities(np.arange(80), TASKS, LABELS, plan)


def test_sizes__are_images_for_each_cluster():
    assert granularities(None).sizes == {"size2": 2, "k10": 8}


@pytest.mark.parametrize(("largest", "views"), [(2, VIEWS), (8, VIEWS), (8, None), (8, VIEWS[:0])])
def test_fit__is_the_closed_form_of_the_clusters_and_views(largest, views):
    plan = Plan((largest,), True, "flat", 0.0)
    basis = basis_of(ROWS, TASKS)
    clusters = {2.0: within_clusters(basis.turn(ROWS), LABELS["size2"])}
    if largest == 8:
        clusters[8.0] = within_clusters(basis.turn(ROWS), LABELS["k10"])
    seen = of_views(basis, VIEWS) if views is VIEWS else None
    expected = closed_form(basis, clusters, seen, plan)
    np.testing.assert_allclose(granularities(plan).fit(ROWS, views).projection, expected.projection, atol=1e-6)


def test_fit__from_what_was_written_is_the_same(tmp_path):
    basis = basis_of(ROWS, TASKS)
    write_basis(basis, tmp_path)
    for name, labels in LABELS.items():
        (tmp_path / name).mkdir()
        write_scatter(within_clusters(basis.turn(ROWS), labels), tmp_path / name)
    plan = Plan((8,), False, "weighted", 0.0)
    known = read_basis(tmp_path), read_scatters(tmp_path, [*LABELS])
    stored, fitted = granularities(plan).fit(ROWS, None, known), granularities(plan).fit(ROWS, None)
    np.testing.assert_allclose(stored.projection, fitted.projection, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(stored.mean, fitted.mean)


def test_fit__gives_no_layer_where_none_is_wanted_or_all_are_equal(tmp_path):
    plan = Plan((8,), False, "flat", 0.0)
    assert granularities(None).fit(ROWS, None) is None
    assert granularities(plan).fit(np.repeat(ROWS[:1], 80, 0), None) is None
    assert read_basis(tmp_path) is None
