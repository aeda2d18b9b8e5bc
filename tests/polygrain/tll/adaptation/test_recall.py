import numpy as np
import pytest
import torch

from polygrain.tll.adaptation.recall import better_ranks, recall_of
from tests.helpers.pairs import plain_ranks


@pytest.mark.parametrize("block_bytes", [1, 1000, 2**20])
def test_better_ranks__equal_those_of_sorting(block_bytes):
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(3, 40, 6, generator=generator)
    right = left + torch.randn(3, 40, 6, generator=generator)
    ranks = better_ranks(left, right, block_bytes)
    for run in range(3):
        assert ranks[run].tolist() == plain_ranks(left[run] @ right[run].T)


def test_better_ranks__count_equals_against():
    rows = torch.eye(4)[None, [0, 0, 2, 3]]
    assert better_ranks(rows, rows).tolist() == [[2, 2, 1, 1]]
    assert better_ranks(torch.ones(1, 5, 2), torch.ones(1, 5, 2)).tolist() == [[5] * 5]


def test_recall_of__the_share_within_k():
    np.testing.assert_allclose(recall_of(torch.tensor([[1, 1, 2, 3], [4, 4, 4, 4]]), [1, 2]), [[0.5, 0.75], [0, 0]])
