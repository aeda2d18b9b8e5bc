import numpy as np
import pytest

from polygrain.compute.sortable import sortable

EDGES = [-np.inf, -3.4e38, -2.0, -1.0, -1e-38, -1e-45, -0.0, 0.0, 1e-45, 1e-38, 1.0, 2.0, 3.4e38, np.inf]


@pytest.mark.parametrize("seed", range(3))
def test_sortable__compares_as_the_floats_do(seed):
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 2**32, 200, dtype=np.uint32).view(np.float32)  # any bits
    values = np.concatenate([drawn[~np.isnan(drawn)], np.array(EDGES, np.float32)])
    values = np.concatenate([values, np.nextafter(values, np.float32(np.inf)), values])
    found = sortable(values)
    assert found.dtype == np.int32
    for compare in (np.less, np.equal, np.greater):
        assert (compare.outer(found, found) == compare.outer(values, values)).all()


def test_sortable__leaves_its_input_alone_and_keeps_its_shape():
    values = np.array([[-1.0, -0.0], [0.0, 1.0]], np.float32)
    before = values.tobytes()
    assert sortable(values).shape == (2, 2) and sortable(values[:, ::-1]).shape == (2, 2)
    assert values.tobytes() == before
