import numpy as np
import torch

from polygrain.tll.adaptation.recall import better_ranks, recall_of
from tests.helpers.pairs import plain_ranks


def test_better_ranks__equal_those_of_sorting():
    left, noise = torch.randn(2, 40, 6, generator=torch.Generator().manual_seed(0))
    right = left + noise
    assert better_ranks(left, right).tolist() == plain_ranks(left @ right.T)


def test_better_ranks__count_equals_against():
    rows = torch.eye(4)[[0, 0, 2, 3]]
    assert better_ranks(rows, rows).tolist() == [2, 2, 1, 1]
    assert better_ranks(torch.ones(5, 2), torch.ones(5, 2)).tolist() == [5] * 5


def test_recall_of__the_share_within_k():
    np.testing.assert_allclose(recall_of(torch.tensor([[1, 1, 2, 3], [4, 4, 4, 4]]), [1, 2]), [[0.5, 0.75], [0, 0]])
