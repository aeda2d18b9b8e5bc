import math

import pytest
import torch
from torch.nn.functional import normalize

from polygrain.losses.symmetric_softmax import symmetric_softmax


def plain(left, right, sigma):
    """Eq. 1 in loops: the mean over both directions of -log softmax at the truth."""
    n = len(left)
    similarity = [[sigma * sum(a * b for a, b in zip(x, y, strict=True)) for y in right] for x in left]
    total = 0.0
    for i in range(n):
        row = sum(math.exp(similarity[i][j]) for j in range(n))
        column = sum(math.exp(similarity[j][i]) for j in range(n))
        total += math.log(row) + math.log(column) - 2 * similarity[i][i]
    return total / (2 * n)


@pytest.mark.parametrize("sigma", [1.0, 15.0])
def test_symmetric_softmax__equals_the_plain_loop(sigma):
    left, right = normalize(torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0)).relu(), dim=-1)
    expected = plain(left.tolist(), right.tolist(), sigma)
    assert symmetric_softmax(left, right, sigma).item() == pytest.approx(expected, rel=1e-5)
