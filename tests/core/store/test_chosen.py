import numpy as np

from stages.core.store import arrays
from stages.core.store.chosen import Chosen


def test_chosen__rows_of_a_store_in_float32(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float16)
    arrays.write(tmp_path / "features.zarr", values)
    rows = np.array([3, 5, 30, 31, 39])
    chosen = Chosen(arrays.open(tmp_path / "features.zarr"), rows)
    assert chosen.shape == (5, 3) and len(chosen) == 5 and chosen[1:3].dtype == np.float32
    np.testing.assert_array_equal(chosen[1:4], values[rows][1:4])
    np.testing.assert_array_equal(chosen[np.array([4, 0])], values[rows][[4, 0]])
