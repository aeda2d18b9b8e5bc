import logging

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from polygrain.retrieval import whitening
from tests.helpers.whitened import whitened


def draw(n, d, seed):
    points = np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(1, 4, d) + 5
    return points.astype(np.float32)


@pytest.mark.parametrize(("n", "d", "dim"), [(300, 12, 5), (300, 12, 12), (20, 60, 7), (20, 60, 19), (9, 8, 8)])
def test_fit__equals_scikit_learn(n, d, dim):
    features, others = draw(n, d, 0), draw(15, d, 1)
    peer = PCA(dim, whiten=True, svd_solver="full").fit(features.astype(np.float64))
    fitted = whitening.fit(features, dim)
    ours, theirs = (others - fitted.mean) @ fitted.projection, peer.transform(others.astype(np.float64))
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), rtol=1e-4, atol=1e-4)
    unit = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    applied = whitening.apply(fitted, others)
    np.testing.assert_allclose(applied @ applied.T, unit @ unit.T, atol=1e-5)


def test_fit__is_deterministic_and_takes_tensors():
    first, second = whitening.fit(draw(50, 9, 0), 4), whitening.fit(torch.from_numpy(draw(50, 9, 0)), 4)
    assert first.projection.tobytes() == second.projection.tobytes()
    strongest = np.abs(first.projection).argmax(0)
    assert (first.projection[strongest, np.arange(4)] > 0).all()


@pytest.mark.parametrize("d", [6, 40])
def test_fit__gives_zeros_where_there_is_no_variance(d, caplog):
    features = np.repeat(draw(4, d, 0), 5, 0)
    with caplog.at_level(logging.WARNING):
        fitted = whitening.fit(features, 6)
    assert "20 vectors vary along 3 axes" in caplog.text
    assert (fitted.projection != 0).any(0).tolist() == [True] * 3 + [False] * 3
    applied = whitening.apply(fitted, features)
    np.testing.assert_allclose(np.linalg.norm(applied, axis=1), 1, rtol=1e-5)
    assert (applied[:, 3:] == 0).all()


def test_fit__raises_on_equal_features_and_values_that_are_not_finite():
    with pytest.raises(ValueError, match="all 7 features are equal"):
        whitening.fit(np.full((7, 3), 0.1, np.float32), 2)
    with pytest.raises(ValueError, match="features hold nan in row 0"):
        whitening.fit(np.full((7, 3), np.nan, np.float32), 2)


@pytest.mark.parametrize(("kind", "power"), [("half", 0.25), ("full", 0.5)])
@pytest.mark.parametrize(("n", "d"), [(300, 12), (20, 60)])
def test_fit__each_kind_equals_its_definition(kind, power, n, d):
    features = draw(n, d, 0)
    applied, expected = whitening.apply(whitening.fit(features, 5, kind), features), whitened(features, 5, power)
    np.testing.assert_allclose(np.abs(applied), np.abs(expected), atol=1e-4)
    np.testing.assert_allclose(applied @ applied.T, expected @ expected.T, atol=1e-4)


def test_fit__has_no_more_dimensions_than_features_allow():
    assert [whitening.fit(draw(*shape, 0), 99).projection.shape[1] for shape in ((9, 4), (3, 40))] == [4, 2]
    equal = np.full((7, 3), 0.1, np.float32)
    rounded = equal + np.float32(1e-8) * (np.arange(7, dtype=np.float32)[:, None] % 2)
    assert rounded.std() > 0
    for alike in (equal, rounded, draw(1, 4, 0)):
        assert whitening.fit_if_varied(alike, 2, "full") is None


def test_fit_all__is_every_fit_of_its_own():
    features, others = draw(60, 12, 0), draw(15, 12, 1)
    found = whitening.fit_all(features, [3, 7, 99], ["half", "full"])
    assert list(found) == [(kind, dim) for dim in (3, 7, 12) for kind in ("half", "full")]
    for (kind, dim), fitted in found.items():
        alone = whitening.apply(whitening.fit(features, dim, kind), others)
        np.testing.assert_allclose(whitening.apply(fitted, others), alone, atol=1e-5)
