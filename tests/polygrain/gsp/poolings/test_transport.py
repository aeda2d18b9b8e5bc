import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from polygrain.gsp.poolings.transport import newton_root, weight_transport

FAMILIES = ("random", "clustered", "small", "bimodal")
MUS = (0.1, 0.3, 0.7, 0.95)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cost_maps(family: str, m: int, n: int, count: int = 3, dim: int = 128) -> Tensor:
    """Costs in float64: random directions, half of the features near prototypes, short vectors, or two far levels."""
    if family == "bimodal":
        near = torch.rand(count, 1, n, generator=torch.Generator().manual_seed(n)) < 0.3
        noise = 1e-3 * draw(count, m, n).abs()
        return torch.where(near, noise, 2 - noise)
    prototypes, features = (torch.nn.functional.normalize(draw(count, k, dim, seed=k), dim=-1) for k in (m, n))
    if family == "clustered":
        features[:, : n // 2] = prototypes[:, torch.arange(n // 2) % m] + 0.02 * draw(count, n // 2, dim)
    if family == "small":
        prototypes, features = 0.1 * prototypes, 0.1 * features
    return torch.cdist(prototypes, features)


def bisected(cost: Tensor, mu: float, epsilon: float) -> tuple[Tensor, Tensor]:
    """(rho, pi) from 100 halvings of the bracket of u."""
    scores = -epsilon * cost
    a = scores.logsumexp(-2)
    logit = math.log(mu / (1 - mu))
    low, high = logit - a.amax(-1, keepdim=True), logit - a.amin(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        is_below = torch.sigmoid(middle + a).mean(-1, keepdim=True) < mu
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    share = torch.sigmoid((low + high) / 2 + a)
    return (1 - share) / a.shape[-1], scores.softmax(-2) * share[..., None, :] / a.shape[-1]


def iterated(cost: Tensor, mu: float, epsilon: float, iterations: int) -> tuple[Tensor, Tensor]:
    """(rho, pi) by the paper's iteration from t = 1 (Prop. 4.2), differentiable through all of it."""
    n, kernel = cost.shape[-1], (-epsilon * cost).exp()
    t = torch.ones_like(cost[..., :1, :1])
    for _ in range(iterations):
        rho = 1 / (n * (1 + t * kernel.sum(-2, keepdim=True)))
        pi = t * kernel * rho
        t = t * mu / pi.sum((-2, -1), keepdim=True)
    return rho.squeeze(-2), pi


@pytest.mark.parametrize("epsilon", [0.5, 5.0, 300.0, 3000.0])
@pytest.mark.parametrize(("dtype", "bar"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_weight_transport__equals_bisection_for_any_sharpness(epsilon, dtype, bar):
    """With 50 features, whole features fill mu n exactly. Errors are of n p = (1 - n rho) / mu, and of n pi / mu."""
    for (family, mu), (m, n) in zip(itertools.product(FAMILIES, MUS), itertools.cycle([(8, 49), (8, 50), (32, 196)])):
        cost = cost_maps(family, m, n).to(dtype)
        result, expected = weight_transport(cost, mu, epsilon), bisected(cost.double(), mu, epsilon)
        for ours, exact in zip(result, expected, strict=True):
            assert ours.dtype == dtype
            assert (n / mu * (ours - exact)).abs().max() <= bar


@pytest.mark.parametrize(("mu", "steps"), [(0.1, 100), (0.3, 200), (0.7, 800)])
def test_weight_transport__equals_the_printed_iteration_with_its_gradient(mu, steps, epsilon=5.0):
    cost = cost_maps("clustered", 8, 49, count=1).requires_grad_()
    to_rho, to_pi = draw(1, 49, seed=1), draw(1, 8, 49, seed=2)
    gradients = []
    for rho, pi in (weight_transport(cost, mu, epsilon), iterated(cost, mu, epsilon, steps)):
        assert torch.allclose(rho + pi.sum(-2), torch.full_like(rho, 1 / 49)) and abs(pi.sum().item() - mu) < 1e-12
        gradients += torch.autograd.grad((rho * to_rho).sum() + (pi * to_pi).sum(), cost)
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-10 * gradients[1].abs().max()


def test_weight_transport__gradient_of_proposition_4_3_needs_rho_inside_the_diag(mu=0.3, epsilon=5.0):
    """-epsilon (pi o g - n pi Diag(q - eta / kappa rho)); in print rho stands behind the Diag, as a vector."""
    cost = cost_maps("random", 3, 5, count=1)[0]
    to_rho, to_pi = draw(5, seed=1), draw(3, 5, seed=2)

    def loss(cost: Tensor) -> Tensor:
        rho, pi = weight_transport(cost, mu, epsilon)
        return (rho * to_rho).sum() + (pi * to_pi).sum()

    steps = 1e-5 * torch.eye(15, dtype=torch.float64).reshape(15, 3, 5)
    differences = torch.stack([(loss(cost + step) - loss(cost - step)) / 2e-5 for step in steps]).reshape(3, 5)
    rho, pi = weight_transport(cost, mu, epsilon)
    q = rho * to_rho + (pi * to_pi).sum(0)
    ratio = ((rho * to_rho).sum() - 5 * q @ rho) / (1 - mu - 5 * rho @ rho)
    inside, printed, entrywise = pi * (q - ratio * rho), (pi @ ((q - ratio) * rho))[:, None], pi * (q - ratio) * rho
    errors = [
        ((epsilon * (5 * part - pi * to_pi) - differences).norm() / differences.norm()).item()
        for part in (inside, printed, entrywise)
    ]
    assert errors[0] < 1e-8 and min(errors[1:]) > 0.1, errors


@pytest.mark.parametrize("mu", [0.25, 0.3, 0.7])
def test_weight_transport__equals_the_linear_program(mu, epsilon=3000.0):
    """Costs are 40 different numbers, at least .1 apart: the program has one solution, and a sharp epsilon reaches it.

    The entropy of (rho, pi) is at most log n (m + 1), so the cost is above the optimum by at most that over epsilon.
    """
    m, n = 4, 10
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        cost = (0.1 * torch.randperm(m * n, generator=generator).double()).reshape(m, n)
        rho, pi = weight_transport(cost, mu, epsilon)
        marginals = np.vstack([np.hstack([np.eye(n)] * (m + 1)), [0.0] * n + [1.0] * m * n])
        solved = linprog(np.concatenate([np.zeros(n), cost.flatten()]), A_eq=marginals, b_eq=[*[1 / n] * n, mu])
        assert solved.status == 0
        assert -1e-12 <= (cost * pi).sum() - solved.fun <= math.log(n * (m + 1)) / epsilon
        assert torch.allclose(torch.cat([rho, pi.flatten()]), torch.from_numpy(solved.x), atol=1e-9)


HARD = {
    "steps": lambda n: 3.0 * torch.arange(n, dtype=torch.float64).expand(20, n),
    "ties": lambda n: (5 * draw(20, n).abs()).floor(),
    "one far": lambda n: torch.cat([100 + draw(20, 1), draw(20, n - 1, seed=1)], 1),
    "random": lambda n: draw(20, n),
}


@pytest.mark.parametrize("family", HARD)
@pytest.mark.parametrize("can_stop", [True, False])
def test_newton_root__keeps_the_sum_where_whole_features_almost_fill_it(family, can_stop):
    for n, scale in itertools.product((1, 2, 49, 300), (0.1, 10.0, 1e4)):
        a = scale * HARD[family](n)
        a = a - a.amax(1, keepdim=True)
        for mu in (1e-6, 0.3, 24 / 49, 24 / 49 + 1e-12, 24 / 49 - 1e-9, 0.999, 1 - 1e-12):
            share = torch.sigmoid(newton_root(a, mu, can_stop) + a)
            assert (n * (share.mean(1) - mu)).abs().max() <= 1e-9


@pytest.mark.parametrize("epsilon", [5.0, 300.0, 3000.0])
def test_weight_transport__gradient_equals_finite_differences(epsilon):
    cost = cost_maps("random", 3, 5, count=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda c: weight_transport(c, 0.45, epsilon), cost, eps=1e-5 / epsilon, rtol=1e-5)


def test_weight_transport__gradient_keeps_its_sign_in_hard_selections():
    """Three in ten features are so near that nothing else is chosen: in float32 the paper's kappa is rounding noise."""
    near = torch.arange(50) < 15
    cost = (
        torch.where(near, 0.1, 1.9) + 0.02 * torch.rand(20, 8, 50, generator=torch.Generator().manual_seed(0)).double()
    )
    to_rho = draw(20, 50)
    exact, ours = (
        torch.autograd.grad((weight_transport(leaf, 0.3, 20.0)[0] * to_rho.to(leaf)).sum(), leaf)[0].double()
        for leaf in (cost.clone().requires_grad_(), cost.float().requires_grad_())
    )
    clear = exact.abs() > 1e-3 * exact.abs().amax((1, 2), keepdim=True)
    assert (ours.sign() == exact.sign())[clear].all()
    assert (ours - exact).norm() <= 1e-3 * exact.norm()
    rho = weight_transport(cost.float(), 0.3, 20.0)[0]
    assert (0.7 - 50 * rho.square().sum(1) < 0).any(), "the case is too easy: the paper's kappa keeps its sign"


def test_weight_transport__gradient_stays_finite_where_the_slopes_underflow():
    cost = torch.where(torch.arange(10) < 3, 0.0, 50.0).expand(1, 4, 10).clone().requires_grad_()
    rho, pi = weight_transport(cost, 0.3, 20.0)
    (gradient,) = torch.autograd.grad((rho * torch.arange(10.0)).sum() + pi.square().sum(), cost)
    assert torch.isfinite(gradient).all()
    assert torch.allclose(rho[0], torch.where(torch.arange(10) < 3, 0.0, 0.1), atol=1e-6)


def test_weight_transport__keeps_all_for_mu_1():
    cost = cost_maps("random", 8, 49).requires_grad_()
    rho, pi = weight_transport(cost, 1.0, 5.0)
    expected = (-5 * cost).softmax(-2) / 49
    assert torch.equal(rho, torch.zeros_like(rho)) and torch.allclose(pi, expected, rtol=1e-12)
    to_pi = torch.randn_like(pi)
    ours, theirs = (torch.autograd.grad((plan * to_pi).sum(), cost)[0] for plan in (pi, expected))
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize(
    ("cost", "mu", "epsilon", "word"),
    [(1.0, 0.0, 5.0, "mu"), (1.0, 1.01, 5.0, "mu"), (1.0, 0.3, 0.0, "epsilon"), (math.nan, 0.3, 5.0, "NaN")],
)
def test_weight_transport__refuses(cost, mu, epsilon, word):
    with pytest.raises(ValueError, match=word):
        weight_transport(torch.tensor([[1.0, cost]]), mu, epsilon)
