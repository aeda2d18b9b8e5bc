import numpy as np
import pytest

from polygrain.compute import principal
from polygrain.compute.principal import largest, principal_components

SHAPES = [(300, 12, 5), (300, 12, 12), (20, 60, 7), (20, 60, 19), (9, 8, 8)]


def draw(n, d, seed=0):
    points = np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(1, 4, d) + 5
    return points.astype(np.float32)


@pytest.mark.parametrize(("n", "d", "components"), SHAPES)
def test_principal_components__equal_the_singular_vectors(n, d, components, monkeypatch):
    monkeypatch.setattr(principal, "BLOCK_VALUES", 50)
    x = draw(n, d)
    found = principal_components(x, components)
    centred = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(found.mean, x.mean(0, dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(np.abs(vectors[:components] @ found.axes), np.eye(components), atol=2e-3)
    np.testing.assert_allclose(found.energies, values[:components] ** 2, rtol=1e-3)
    np.testing.assert_allclose(found.shares, (values**2 / (values**2).sum())[:components], rtol=1e-3)
    strongest = np.abs(found.axes).argmax(0)
    assert (found.axes[strongest, np.arange(components)] > 0).all()


@pytest.mark.parametrize("d", [6, 40])
def test_principal_components__are_zero_where_nothing_varies(d):
    found = principal_components(np.repeat(draw(4, d), 5, 0), 6)
    assert (found.energies > 0).tolist() == (found.axes != 0).any(0).tolist() == [True] * 3 + [False] * 3
    assert found.shares.sum() == pytest.approx(1)
    constant = principal_components(np.full((7, d), 0.1, np.float32), 2)
    assert not constant.axes.any() and not constant.energies.any() and not constant.shares.any()


@pytest.mark.parametrize(
    ("n", "d", "components", "limit"), [(10, 4, 5, 4), (10, 40, 10, 9), (10, 4, 0, 4), (1, 4, 1, 0)]
)
def test_principal_components__raise_on_an_impossible_number(n, d, components, limit):
    with pytest.raises(ValueError, match=rf"{components} principal components of {n} rows .*; allowed is 1 to {limit}"):
        principal_components(draw(n, d), components)
    assert largest(draw(n, d)) == limit
