import tracemalloc

import numpy as np
import pytest

from polygrain.clustering.sampled import assign, draw
from tests.polygrain.compute.test_vectors import draw as vectors
from tests.polygrain.compute.test_vectors import squared


@pytest.mark.parametrize("rows", [7, 1_000])
def test_assign__equals_comparing_every_row_with_every_centroid(rows):
    x, summed, centroids = vectors(500, 8, 0), vectors(500, 3, 1), vectors(20, 8, 2)
    result = assign(lambda part: (summed[part], x[part]), 500, centroids, rows)
    expected = squared(x, centroids)
    np.testing.assert_array_equal(result.labels, expected.argmin(1))
    np.testing.assert_allclose(result.squares, expected.min(1), rtol=1e-5)
    for cluster in range(20):
        sums = summed[result.labels == cluster].sum(0, dtype=np.float64)
        np.testing.assert_allclose(result.sums[cluster], sums, atol=1e-5)


def test_assign__holds_a_block_and_not_all_rows():
    n, dim = 100_000, 64
    rng, centroids = np.random.default_rng(0), np.eye(4, dim, dtype=np.float32)

    def read(part):
        block = rng.random((part.stop - part.start, dim), np.float32)
        return block, block

    tracemalloc.start()
    assign(read, n, centroids, 1_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * dim * 4 / 2


def test_draw__is_ascending_distinct_and_of_the_seed():
    first = draw(1_000, 100, 3)
    assert (np.diff(first) > 0).all() and first.min() >= 0 and first.max() < 1_000 and len(first) == 100
    np.testing.assert_array_equal(first, draw(1_000, 100, 3))
    assert (first != draw(1_000, 100, 4)).any()
