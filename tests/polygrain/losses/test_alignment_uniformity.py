import math

import pytest
import torch
from torch.nn.functional import normalize

from polygrain.losses.alignment_uniformity import alignment, uniformity


def test_alignment__is_the_mean_squared_distance_on_the_sphere():
    x, y = torch.randn(5, 4), torch.randn(5, 4)
    plain = [float((normalize(a, dim=0) - normalize(b, dim=0)).square().sum()) for a, b in zip(x, y, strict=True)]
    assert alignment(x, y).item() == pytest.approx(sum(plain) / 5, rel=1e-5)
    assert alignment(x, 3 * x).item() == pytest.approx(0, abs=1e-6)


def test_uniformity__is_the_log_of_the_mean_gaussian_potential():
    x = torch.randn(6, 4)
    unit = normalize(x, dim=1)
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    plain = [math.exp(-2 * float((unit[i] - unit[j]).square().sum())) for i, j in pairs]
    assert uniformity(x).item() == pytest.approx(math.log(sum(plain) / len(plain)), rel=1e-5)
    assert uniformity(torch.ones(4, 3)).item() == pytest.approx(0, abs=1e-6)
