import math

import torch

from polygrain.gsp.poolings.crow import CroW

MAPS = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))


def test_crow__equals_a_loop():
    result = CroW(5)(MAPS).vector
    for image in range(2):
        positive = [[max(0.0, v) for v in channel.flatten().tolist()] for channel in MAPS[image]]
        totals = [sum(channel[j] for channel in positive) for j in range(12)]
        norm = math.sqrt(sum(total**2 for total in totals))
        common = [sum(1 / (1 + math.exp(-v)) for v in channel) / 12 for channel in positive]
        for k, channel in enumerate(positive):
            summed = sum(math.sqrt(totals[j] / norm) * channel[j] for j in range(12)) / 12
            assert math.isclose(result[image, k].item(), summed * math.log(sum(common) / common[k]), rel_tol=1e-4)


def test_crow__has_a_finite_gradient_for_an_empty_map():
    maps = torch.zeros(1, 5, 3, 4, requires_grad=True)
    CroW(5)(maps).vector.sum().backward()
    assert torch.isfinite(maps.grad).all()
