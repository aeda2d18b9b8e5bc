import math

import pytest
import torch

from polygrain.losses.barlow_twins import barlow_twins


def plain(z1, z2, beta):
    """Eq. 4 entry by entry, on columns that were centred and divided by their standard deviation."""
    n, d = z1.shape
    columns = []
    for z in (z1, z2):
        mean = [sum(z[b][i].item() for b in range(n)) / n for i in range(d)]
        var = [sum((z[b][i].item() - mean[i]) ** 2 for b in range(n)) / n for i in range(d)]
        columns.append([[(z[b][i].item() - mean[i]) / math.sqrt(var[i] + 1e-5) for b in range(n)] for i in range(d)])
    loss = 0.0
    for i in range(d):
        for j in range(d):
            c = sum(a * b for a, b in zip(columns[0][i], columns[1][j], strict=True)) / n
            loss += (1 - c) ** 2 if i == j else beta * c**2
    return loss


def test_barlow_twins__equals_the_plain_sum():
    generator = torch.Generator().manual_seed(0)
    z1, z2 = torch.randn(2, 9, 5, generator=generator)
    assert barlow_twins(z1, z2 + 3, 0.0051).item() == pytest.approx(plain(z1, z2 + 3, 0.0051), rel=1e-5)
