import math

import pytest
import torch

from polygrain.losses.norm_softmax import norm_softmax


def plain(z, weights, labels, gamma):
    total, right = 0.0, 0
    for row, label in zip(z.tolist(), labels.tolist(), strict=True):
        cosines = []
        for w in weights.tolist():
            dot = sum(a * b for a, b in zip(row, w, strict=True))
            cosines.append(dot / math.sqrt(sum(a * a for a in row)) / math.sqrt(sum(b * b for b in w)))
        total -= gamma * cosines[label] - math.log(sum(math.exp(gamma * c) for c in cosines))
        right += cosines.index(max(cosines)) == label
    return total / len(z), right / len(z)


def test_norm_softmax__equals_the_plain_sum():
    generator = torch.Generator().manual_seed(0)
    z, weights = torch.randn(12, 6, generator=generator) * 5, torch.randn(7, 6, generator=generator)
    labels = torch.randint(7, (12,), generator=generator)
    loss, accuracy = norm_softmax(z, weights, labels, gamma=23.0)
    expected = plain(z, weights, labels, 23.0)
    assert loss.item() == pytest.approx(expected[0], rel=1e-5)
    assert accuracy.item() == pytest.approx(expected[1])
