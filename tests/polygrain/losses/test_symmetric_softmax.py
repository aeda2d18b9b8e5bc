import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from polygrain.losses.symmetric_softmax import symmetric_softmax


def sides(pairs=7):
    """Two runs of pairs of unit vectors."""
    return tuple(normalize(torch.randn(2, 2, pairs, 5, generator=torch.Generator().manual_seed(0)).relu(), dim=-1))


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
    left, right = sides()
    losses, _, _ = symmetric_softmax(left, right, sigma)
    for run in range(2):
        assert losses[run].item() == pytest.approx(plain(left[run].tolist(), right[run].tolist(), sigma), rel=1e-5)


@pytest.mark.parametrize("sigma", [1.0, 15.0, 50.0])
@pytest.mark.parametrize(("pairs", "block_bytes", "keep_bytes"), [(7, 2**20, 2**20), (1100, 1, 2**30), (1100, 1, 0)])
def test_symmetric_softmax__gradient_equals_autograd(sigma, pairs, block_bytes, keep_bytes):
    """The whole matrix at once, kept and worked on by blocks, and by blocks alone."""
    left, right = sides(pairs=pairs)
    _, *gradients = symmetric_softmax(left, right, sigma, block_bytes, keep_bytes)
    target = torch.arange(left.shape[1])
    for run in range(2):
        x, y = left[run].clone().requires_grad_(), right[run].clone().requires_grad_()
        similarity = sigma * x @ y.T
        loss = (cross_entropy(similarity, target) + cross_entropy(similarity.T, target)) / 2
        for result, expected in zip(gradients, torch.autograd.grad(loss, (x, y)), strict=True):
            torch.testing.assert_close(result[run], expected, rtol=1e-4, atol=1e-6)
