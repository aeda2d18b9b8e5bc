import pytest
import torch

from polygrain.gsp.poolings.fused_transport import choose
from polygrain.gsp.poolings.prototypes import costs, into_ball
from polygrain.gsp.poolings.transport import weight_transport


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(features: torch.Tensor, centres: torch.Tensor, mu, epsilon: float) -> tuple[torch.Tensor, ...]:
    rho, pi = weight_transport(costs(features, centres), mu, epsilon)
    share = 1 - rho.shape[1] * rho
    return share, pi.sum(2), (features * share[:, None]).mean(2)


@pytest.mark.parametrize("length", [0.02, 0.09, 1.0])  # all features inside the ball, some, none
@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.5), (0.3, 5.0), (0.7, 20.0), (1.0, 5.0)])
def test_choose__equals_the_plain_version_with_its_gradients(length, mu, epsilon):
    leaves = [
        (length * draw(3, 128, 49)).requires_grad_(),
        into_ball(draw(8, 128, seed=1)).requires_grad_(),
        torch.tensor(mu, dtype=torch.float64, requires_grad=True),
    ]
    inside = leaves[0].norm(dim=1) < 1
    assert {0.02: inside.all(), 0.09: inside.any() and not inside.all(), 1.0: not inside.any()}[length]
    weights = draw(3, 49, seed=2), draw(3, 8, seed=3), draw(3, 128, seed=4)
    results = [function(*leaves, epsilon) for function in (choose, plain)]
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    # All results together, then each alone, as when a loss does not use the others.
    for used in ([0, 1, 2], [0], [1], [2]):
        gradients = [
            torch.autograd.grad([found[i] for i in used], leaves, [weights[i] for i in used], retain_graph=True)
            for found in results
        ]
        for ours, theirs in zip(*gradients, strict=True):
            assert (ours - theirs).abs().max() <= 1e-10 * theirs.abs().max().clamp_min(1e-3)


def test_choose__gradients_equal_finite_differences():
    leaves = (0.4 * draw(2, 6, 5)).requires_grad_(), (0.3 * draw(3, 6, seed=1)).requires_grad_()
    mu = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda f, c, m: choose(f, c, m, 5.0), (*leaves, mu))


def test_choose__is_near_its_float64_result_in_float32():
    features, centres = 0.09 * draw(3, 128, 196), into_ball(draw(64, 128, seed=1))
    exact = choose(features, centres, 0.3, 5.0)
    for found, expected in zip(choose(features.float(), centres.float(), 0.3, 5.0), exact, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() <= 1e-5
