"""The estimator: scikit-learn's own checks, what it learns, and vectors it can learn nothing from."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from polygrain.clustering.lloyd import kmeans
from polygrain.clustering.sampled import draw_cells
from polygrain.compute.vectors import unit_rows
from polygrain.fisher import estimator
from polygrain.fisher.closed_form import basis_of, closed_form
from polygrain.fisher.estimator import ClusterWhitening, Units, clusters_of, half_whitened, load, save
from polygrain.fisher.scatter import within_clusters


@parametrize_with_checks([ClusterWhitening()])
@pytest.mark.filterwarnings("ignore")  # scikit-learn says which of its checks it skips
def test_cluster_whitening__passes_scikit_learns_checks(estimator, check):
    check(estimator)


def kinds(groups=60, each=10, seed=0):
    """Kinds that differ along 16 axes; along three longer ones all rows do."""
    rng = np.random.default_rng(seed)
    means, labels = rng.normal(size=(groups, 16)), np.arange(groups).repeat(each)
    near = means[labels] + 0.5 * rng.normal(size=(len(labels), 16))
    rows = np.concatenate([near, 2 * rng.normal(size=(len(labels), 3))], 1) + 3
    return (rows * rng.uniform(1, 9, (len(labels), 1))).astype(np.float32), labels


ROWS, LABELS = kinds()


def same_kind(rows, labels):
    """How often the nearest other row is of the same kind."""
    cosines = unit_rows(rows) @ unit_rows(rows).T
    np.fill_diagonal(cosines, -9)
    return (labels[cosines.argmax(1)] == labels).mean()


@pytest.mark.parametrize("alike", [None, 10, 30])
def test_fit__by_its_own_clusters_finds_more_of_a_kind(alike):
    centred = unit_rows(ROWS) - unit_rows(ROWS).mean(0)
    found = ClusterWhitening(alike).fit_transform(ROWS)
    assert same_kind(found, LABELS) > same_kind(centred, LABELS) + 0.03
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_fit__by_given_clusters_is_the_closed_form_of_these():
    basis = basis_of(unit_rows(ROWS), np.zeros(600, int))
    known = [within_clusters(basis.turn(unit_rows(ROWS)), LABELS)]
    found = ClusterWhitening().fit(ROWS, np.array([f"kind {label}" for label in LABELS]))
    expected = closed_form(basis, known, None)
    np.testing.assert_allclose(found.projection_, expected.projection, atol=1e-4)
    assert same_kind(found.transform(ROWS), LABELS) > 0.9


def test_fit__uses_the_clusters_that_k_means_finds_at_each_size():
    rows = unit_rows(ROWS)
    for size, labels in zip(estimator.SIZES, clusters_of(rows, 3), strict=True):
        expected = kmeans(rows, 600 // size, 3, estimator.ITERATIONS)
        np.testing.assert_array_equal(labels, expected.labels)


def test_half_whitened__has_the_square_root_of_the_variance():
    basis = basis_of(ROWS, np.zeros(600, int))
    centred = (ROWS - ROWS.mean(0)).astype(np.float64) @ basis.axes
    found = half_whitened(basis, basis.turn(ROWS))
    np.testing.assert_allclose(found, unit_rows(centred / np.sqrt(centred.std(0))), atol=1e-4)


@pytest.mark.parametrize(("alike", "least"), [(9, 0.8), (10, 0.5), (None, 0.5)])
def test_fit__of_many_rows_clusters_whole_cells(alike, least):
    found = ClusterWhitening(alike, sample=200).fit(ROWS)
    rows, basis = unit_rows(ROWS), basis_of(unit_rows(ROWS), np.zeros(600, int))
    drawn = rows[draw_cells(rows, 200, 0)]
    clusters = clusters_of(half_whitened(basis, basis.turn(drawn)), 0)
    expected = closed_form(basis, [within_clusters(basis.turn(drawn), labels) for labels in clusters], None, least)
    np.testing.assert_allclose(found.projection_, expected.projection, rtol=1e-3, atol=1e-3)


def test_units__of_any_size_have_length_one():
    rows = np.array([[3e300, 4e300], [3e-300, 4e-300], [0, 0]])
    np.testing.assert_allclose(Units(rows)[:], [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-6)


@pytest.mark.parametrize("rows", [ROWS[:1], np.repeat(ROWS[:1], 50, 0), np.outer(np.arange(1, 9), ROWS[0])])
def test_fit__rows_that_do_not_vary_are_only_brought_to_length_one(rows):
    found = ClusterWhitening().fit(rows)
    np.testing.assert_allclose(found.transform(ROWS), unit_rows(ROWS), atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "labels", "alike"),
    [
        (ROWS[:2], None, None),  # fewer than the smallest granularity needs
        (ROWS[:3], None, 2),
        (ROWS[:5], None, 100),  # more alike than there are
        (np.repeat(ROWS[:5], 10, 0), None, None),  # fewer distinct rows than clusters
        (ROWS, np.arange(600), None),  # clusters all of one row
        (ROWS, np.zeros(600), None),  # one cluster
        (ROWS[:, :1], None, None),
        (np.concatenate([ROWS, np.zeros((5, ROWS.shape[1]), np.float32)]), None, None),
        (ROWS.astype(np.float16), None, 10),
        (np.round(ROWS).astype(int), None, 10),
    ],
)
def test_fit__takes_the_gentler_form(rows, labels, alike):
    found = ClusterWhitening(alike).fit(rows, labels).transform(rows)
    lengths = np.linalg.norm(found, axis=1)
    assert np.isfinite(found).all() and ((np.abs(lengths - 1) < 1e-3) | (lengths == 0)).all()


@pytest.mark.parametrize(
    ("parameters", "message"), [({"alike": 0}, "alike 0"), ({"sample": 0}, "sample is 0"), ({}, "y 599")]
)
def test_fit__says_what_does_not_fit(parameters, message):
    with pytest.raises(ValueError, match=message):
        ClusterWhitening(**parameters).fit(ROWS, LABELS[:599])


def test_fit__is_of_the_random_state():
    first = ClusterWhitening(random_state=1).fit(ROWS).projection_
    np.testing.assert_array_equal(first, ClusterWhitening(random_state=1).fit(ROWS).projection_)
    drawn = ClusterWhitening(random_state=np.random.RandomState(1)).fit(ROWS).projection_
    assert first.shape != drawn.shape or (first != drawn).any()


def test_load__is_what_was_saved(tmp_path):
    fitted = ClusterWhitening().fit(ROWS)
    save(fitted, tmp_path / "a.layer.npz")
    found = load(str(tmp_path / "a.layer.npz"))
    np.testing.assert_array_equal(found.transform(ROWS), fitted.transform(ROWS))
    assert list(found.get_feature_names_out()) == list(fitted.get_feature_names_out())


def test_load__says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        load(tmp_path / "a.layer.npz")
