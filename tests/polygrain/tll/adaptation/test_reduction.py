import numpy as np
import pytest

from polygrain.tll.adaptation import reduction

ROWS = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32) @ np.diag(np.arange(1, 9)).astype(np.float32)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:6]], ids=["tall", "wide"])
def test_fit__equals_the_singular_vectors(rows):
    found = reduction.fit(rows, 4)
    centred = rows - rows.mean(0)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(found.components @ vectors[:4].T), np.eye(4), atol=1e-3)
    np.testing.assert_allclose(found.explained, (values**2 / (values**2).sum())[:4], rtol=1e-3)
    np.testing.assert_allclose(np.abs(found.apply(rows)), np.abs(centred @ vectors[:4].T), atol=1e-2)


@pytest.mark.parametrize(("rows", "largest"), [(ROWS, 8), (ROWS[:6], 5)])
def test_fit__raise_names_the_largest_possible(rows, largest):
    reduction.fit(rows, largest)
    with pytest.raises(ValueError, match=rf"components is {largest + 1}; .* have at most {largest}"):
        reduction.fit(rows, largest + 1)


def test_save__loads_the_same(tmp_path):
    fits = [reduction.fit(ROWS, 3), reduction.fit(ROWS[:20], 3)]
    reduction.save(fits, tmp_path / "pca.safetensors")
    for one, again in zip(fits, reduction.load(tmp_path / "pca.safetensors"), strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(one, again, strict=True))
