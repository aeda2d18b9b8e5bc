import itertools

import pytest
import torch
from torch import nn

from polygrain.gsp.poolings.prototypes import Selection, costs, into_ball, k_centre, start_prototypes
from polygrain.gsp.poolings.transport import weight_transport


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_costs__equal_plain_distances_in_the_ball():
    features, prototypes = 0.3 * draw(2, 16, 7), 0.3 * draw(5, 16, seed=1)
    cost = costs(features, prototypes)
    for image, i, j in itertools.product(range(2), range(5), range(7)):
        f, w = features[image, :, j], prototypes[i]
        expected = (w / max(1, w.norm()) - f / max(1, f.norm())).norm()
        assert cost[image, i, j].item() == pytest.approx(expected.item(), abs=1e-12)
    assert (features.norm(dim=1) > 1).any() and (features.norm(dim=1) < 1).any()


def test_costs__are_finite_with_finite_gradient_at_distance_0():
    features = torch.eye(4)[None].clone().requires_grad_()
    prototypes = torch.eye(4).clone().requires_grad_()
    cost = costs(features, prototypes)
    cost.sum().backward()
    assert cost.diagonal(dim1=1, dim2=2).max() <= 1e-3
    assert torch.isfinite(features.grad).all() and torch.isfinite(prototypes.grad).all()


def test_selection__equals_the_plain_formulas():
    selection = Selection(8, 5, mu=0.3, epsilon=5.0).double()
    maps = draw(2, 8, 3, 4)
    weights, attributes = selection(maps)
    features = into_ball(maps.flatten(2).transpose(1, 2)).transpose(1, 2)
    cost = torch.cdist(into_ball(selection.prototypes).expand(2, 5, 8), features.transpose(1, 2))
    rho, pi = weight_transport(cost, 0.3, 5.0)
    assert torch.allclose(weights.flatten(1), (1 / 12 - rho) / 0.3, atol=1e-12)
    assert torch.allclose(attributes, pi.sum(2) / 0.3, atol=1e-12)
    assert torch.allclose(weights.sum((1, 2)), torch.ones(2, dtype=torch.float64))
    assert torch.allclose(attributes.sum(1), torch.ones(2, dtype=torch.float64))


def test_selection__stays_float32_under_autocast():
    selection = Selection(8, 5, mu=0.3, epsilon=5.0)
    maps = draw(2, 8, 3, 4).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights, attributes = selection(maps)
    expected = selection(maps)
    assert weights.dtype == attributes.dtype == torch.float32
    assert torch.equal(weights, expected[0]) and torch.equal(attributes, expected[1])


def test_k_centre__equals_a_loop():
    points = draw(40, 3).float()
    rows = k_centre(points, 6, seed=3)
    chosen = rows[:1]
    while len(chosen) < 6:
        nearest = [min((points[p] - points[c]).norm().item() for c in chosen) for p in range(40)]
        chosen.append(nearest.index(max(nearest)))
    assert rows == chosen and k_centre(points, 6, seed=3) == rows
    assert len({k_centre(points, 1, seed)[0] for seed in range(10)}) > 1


def test_start_prototypes__refuses():
    with pytest.raises(ValueError, match="no prototypes"):
        start_prototypes(nn.Identity(), torch.rand(5, 3), 0)
    for embeddings in (torch.ones(9, 3), torch.rand(3, 3)):
        with pytest.raises(ValueError, match="distinct"):
            start_prototypes(Selection(3, 4, 0.3, 5.0), embeddings, 0)
