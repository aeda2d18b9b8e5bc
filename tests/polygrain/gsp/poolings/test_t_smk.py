import torch

from polygrain.gsp.poolings.t_smk import NormWeighted

MAPS = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))


def test_norm_weighted__equals_a_loop_over_places():
    result = NormWeighted(4, window=3)(MAPS)
    for image in range(2):
        total = torch.zeros(4)
        for y in range(3):
            for x in range(5):
                near = MAPS[image, :, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
                total += MAPS[image, :, y, x].norm() * near.mean((1, 2))
        assert torch.allclose(result.vector[image], total / 15, atol=1e-5)
    assert torch.allclose(result.weights.sum((1, 2)), torch.ones(2))


def test_norm_weighted__lengths_have_no_gradient():
    maps = MAPS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(NormWeighted(4, window=1)(maps).vector.sum(), maps)
    assert torch.allclose(gradient, (MAPS.norm(dim=1, keepdim=True) / 15).expand_as(MAPS), atol=1e-6)
