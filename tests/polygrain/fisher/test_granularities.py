import numpy as np
import pytest

from polygrain.fisher.closed_form import basis_of, closed_form, of_views
from polygrain.fisher.granularities import Granularities, read_basis, read_scatters, write_basis, write_scatter
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
    expected = closed_form(basis, clusters, seen).projection
    np.testing.assert_allclose(GIVEN.fit(ROWS, views).projection[:, : expected.shape[1]], expected, atol=1e-6)


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


@pytest.mark.parametrize("dim", [None, 3, 20])
def test_fit__has_the_same_length_whatever_the_images(dim):
    few = ROWS * np.float32([1] * 4 + [0] * 8)
    basis, labels = basis_of(few, TASKS), np.arange(80) // 2
    layer = closed_form(basis, [within_clusters(basis.turn(few), labels)], None).projection[:, :dim]
    for rows in (ROWS, few):
        found = Granularities(np.arange(80), TASKS, {"size2": labels}, dim).fit(rows, None).projection
        assert found.shape == (12, dim or 12)
    np.testing.assert_array_equal(found, np.pad(layer, ((0, 0), (0, (dim or 12) - layer.shape[1]))))


def test_fit__gives_no_layer_without_a_granularity_or_of_equal_rows(tmp_path):
    assert Granularities(np.arange(80), TASKS, {}).fit(ROWS, VIEWS) is None
    assert GIVEN.fit(np.repeat(ROWS[:1], 80, 0), None) is None
    assert read_basis(tmp_path) is None
