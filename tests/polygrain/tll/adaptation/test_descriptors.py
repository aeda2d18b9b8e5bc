import numpy as np
import pytest

from polygrain.store import arrays
from polygrain.tll.adaptation import descriptors, reduction

RANDOM = np.random.default_rng(0)


@pytest.fixture
def features(tmp_path):
    for name in ("left", "right", "left_flipped", "right_flipped"):
        (tmp_path / name).mkdir()
        arrays.write(tmp_path / name / "descriptors.zarr", RANDOM.normal(size=(12, 6)).astype(np.float32))
    return tmp_path


def test_reduced__each_run_by_its_own_fit(features):
    known = descriptors.read(features)
    fits = [reduction.fit(RANDOM.normal(size=(20, 6)).astype(np.float32), 3) for _ in range(2)]
    rows = np.array([[0, 5, 7], [1, 2, 11], [3, 4, 5]])
    used = [fits[0], fits[1], fits[0]]
    sides = descriptors.reduced(known, used, rows, 2)
    assert sides.left.shape == sides.right.shape == (3, 2, 3, 3)
    for run in range(3):
        for view in range(2):
            for side, found in enumerate(sides):
                expected = used[run].apply(known.values[view][side][rows[run]])
                np.testing.assert_allclose(found[run, view].cpu(), expected, rtol=1e-5, atol=1e-6)
    assert descriptors.reduced(known, used, rows, 1).left.shape[1] == 1
