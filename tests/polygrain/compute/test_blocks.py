import numpy as np
import pytest

from polygrain.compute import blocks as module
from polygrain.compute.blocks import blocks, blocks_within, by_blocks


@pytest.mark.parametrize(("count", "step"), [(0, 3), (1, 3), (6, 3), (7, 3), (7, 100)])
def test_blocks__cover_all_rows_once(count, step):
    cut = blocks(count, step)
    assert [row for part in cut for row in range(count)[part]] == list(range(count))
    assert all(part.stop - part.start == step for part in cut[:-1]) and all(part.stop <= count for part in cut)


def test_blocks__cut_a_slice_where_it_lies():
    assert blocks(slice(5, 12), 3) == [slice(5, 8), slice(8, 11), slice(11, 12)]
    assert blocks(slice(5, 5), 3) == []
    assert blocks_within(slice(5, 12), 4, 12) == blocks(slice(5, 12), 3)


def test_blocks_within__hold_at_most_the_cells_but_the_least_rows():
    assert blocks_within(10, 4, 12) == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]
    assert blocks_within(5, 100, 12) == blocks(5, 1)
    assert blocks_within(5, 100, 12, least=4) == [slice(0, 4), slice(4, 5)]
    assert blocks_within(5, 0, 12) == [slice(0, 5)]


def test_by_blocks__changes_all_rows_but_few_at_once(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_VALUES", 15)
    rows, seen = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32), []
    found = by_blocks(rows, lambda some: seen.append(len(some)) or some * 2 + 1)
    np.testing.assert_array_equal(found, rows * 2 + 1)
    assert max(seen) == 3 and by_blocks(rows[:0], np.abs).shape == (0, 4)
    np.testing.assert_array_equal(by_blocks(rows, lambda some: some[:, :2], 2), rows[:, :2])
