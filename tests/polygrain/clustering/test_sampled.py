import tracemalloc

import numpy as np
import pytest

from polygrain.clustering.sampled import assign, draw, draw_cells
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


def test_draw_cells__are_whole_but_the_last_of_which_the_nearest_count():
    x = vectors(2_000, 6, 0)
    rows = draw_cells(x, 300, 3)
    assert (np.diff(rows) > 0).all() and len(rows) == 300
    centres = x[draw(2_000, 134, 3)]  # 20 * 2,000 / 300, rounded up
    squares = squared(x, centres)
    owners, nearest = squares.argmin(1), squares.min(1)
    taken, parts = np.isin(np.arange(2_000), rows), []
    for cell in range(134):
        inside = owners == cell
        if taken[inside].any() and not taken[inside].all():
            parts.append(cell)
            assert nearest[inside & taken].max() <= nearest[inside & ~taken].min()
    assert len(parts) <= 1 and 10 < len(set(owners[rows])) < 40


def test_draw_cells__rows_lie_as_close_as_all_do():
    """Pairs: each row has a twin. Of rows drawn singly a tenth would keep it."""
    x = np.repeat(vectors(2_000, 6, 0), 2, axis=0) + vectors(4_000, 6, 1) * np.float32(1e-3)
    rows = draw_cells(x, 400, 0)
    assert np.isin(rows ^ 1, rows).mean() > 0.95


def test_draw_cells__are_of_the_seed_and_all_where_all_are_asked_for():
    x = vectors(500, 4, 0)
    np.testing.assert_array_equal(draw_cells(x, 100, 3), draw_cells(x, 100, 3))
    assert (draw_cells(x, 100, 3) != draw_cells(x, 100, 4)).any()
    np.testing.assert_array_equal(draw_cells(x, 500, 3), np.arange(500))
    assert len(draw_cells(np.ones((50, 4), np.float32), 10, 0)) == 10
