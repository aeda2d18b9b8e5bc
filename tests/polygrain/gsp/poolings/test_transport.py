import itertools
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from polygrain.gsp.poolings import transport
from polygrain.gsp.poolings.transport import attract, bracket, iterated_transport, newton_root, weight_transport

ROOT = Path(__file__).parents[4]
FAMILIES = ("random", "clustered", "small", "bimodal")
SEEDS = {(8, 49): 95, (8, 50): 95, (32, 196): 10}  # with 50 features, whole ones fill mu n exactly
MUS = (0.1, 0.3, 0.7, 0.95)


def cost_maps(family: str, m: int, n: int, seeds: int = 3, dim: int = 128) -> Tensor:
    """Costs in float64: random directions, half of the features near prototypes, short vectors, or two far levels."""
    generator = torch.Generator().manual_seed(m * n)

    def draw(*shape: int) -> Tensor:
        return torch.randn(seeds, *shape, generator=generator, dtype=torch.float64)

    if family == "bimodal":
        near = torch.rand(seeds, 1, n, generator=generator) < 0.3
        return torch.where(near, 1e-3 * draw(m, n).abs(), 2 - 1e-3 * draw(m, n).abs())
    prototypes, features = (torch.nn.functional.normalize(draw(k, dim), dim=-1) for k in (m, n))
    if family == "clustered":
        features[:, : n // 2] = prototypes[:, torch.arange(n // 2) % m] + 0.02 * draw(n // 2, dim)
    if family == "small":
        prototypes, features = 0.1 * prototypes, 0.1 * features
    return torch.cdist(prototypes, features)


def bisected(cost: Tensor, mu: float, epsilon: float) -> tuple[Tensor, Tensor]:
    """(rho, pi) from 100 halvings of the bracket."""
    scores = -epsilon * cost
    a = scores.logsumexp(-2)
    logit = math.log(mu / (1 - mu))
    low, high = logit - a.amax(-1, keepdim=True), logit - a.amin(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        below = torch.sigmoid(middle + a).mean(-1, keepdim=True) < mu
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    share = torch.sigmoid((low + high) / 2 + a)
    return (1 - share) / a.shape[-1], scores.softmax(-2) * share[..., None, :] / a.shape[-1]


@pytest.mark.parametrize("epsilon", [0.5, 5.0, 20.0, 100.0, 300.0, 3000.0])
def test_weight_transport__meets_bisection_however_sharp(epsilon):
    """4 families x 4 mu x 200 seeds: 3,200 problems. Errors are of n p = (1 - n rho) / mu, and of n pi / mu."""
    for family, ((m, n), seeds) in itertools.product(FAMILIES, SEEDS.items()):
        cost = cost_maps(family, m, n, seeds)
        for mu, (dtype, bar) in itertools.product(MUS, ((torch.float64, 1e-11), (torch.float32, 1e-5))):
            rounded = cost.to(dtype)
            found, expected = weight_transport(rounded, mu, epsilon), bisected(rounded.double(), mu, epsilon)
            for ours, exact in zip(found, expected, strict=True):
                assert ours.dtype == dtype
                assert (n / mu * (ours - exact)).abs().max() <= bar


@pytest.mark.parametrize("mu", [0.25, 0.3, 0.7])
def test_weight_transport__meets_the_linear_programme(mu, epsilon=3000.0):
    """The entropy of (rho, pi), at most log n (m + 1), is all that can keep the cost above that without it.

    Costs are 40 different numbers, .1 apart or more, so the programme has one solution, and a sharp epsilon reaches it.
    """
    m, n = 4, 10
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        cost = (0.1 * torch.randperm(m * n, generator=generator).double()).reshape(m, n)
        rho, pi = weight_transport(cost, mu, epsilon)
        variables = np.concatenate([np.zeros(n), cost.flatten()])
        features = np.hstack([np.eye(n)] * (m + 1))
        mass = np.concatenate([np.zeros(n), np.ones(m * n)])
        solved = linprog(variables, A_eq=np.vstack([features, mass]), b_eq=[*[1 / n] * n, mu])
        assert solved.status == 0
        assert -1e-12 <= (cost * pi).sum() - solved.fun <= math.log(n * (m + 1)) / epsilon
        expected = torch.from_numpy(solved.x)
        assert torch.allclose(torch.cat([rho, pi.flatten()]), expected, atol=1e-9)


def test_weight_transport__keeps_the_marginals():
    cost = cost_maps("clustered", 8, 49)
    rho, pi = weight_transport(cost, 0.3, 5.0)
    assert torch.allclose(rho + pi.sum(-2), torch.full_like(rho, 1 / 49), atol=1e-15)
    assert torch.allclose(pi.sum((-2, -1)), torch.full((3,), 0.3, dtype=torch.float64), atol=1e-14)
    assert (rho >= 0).all() and (pi >= 0).all()


def test_weight_transport__minimises_the_problem():
    """No step that keeps both constraints lowers the entropic objective of P2."""
    cost = cost_maps("random", 4, 6)[0]
    epsilon, mu = 5.0, 0.3
    rho, pi = weight_transport(cost, mu, epsilon)

    def objective(rho: Tensor, pi: Tensor) -> Tensor:
        return (cost * pi).sum() + ((rho * rho.log()).sum() + (pi * pi.log()).sum()) / epsilon

    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        step = 1e-4 * torch.randn(4, 6, generator=generator, dtype=torch.float64)
        step -= step.mean()
        assert objective(rho - step.sum(0), pi + step) > objective(rho, pi)


HARD = {
    "steps": lambda n, draw: 3.0 * torch.arange(n, dtype=torch.float64).expand(20, n),
    "ties": lambda n, draw: (5 * draw(20, n).abs()).floor(),
    "one far": lambda n, draw: torch.cat([100 + draw(20, 1), draw(20, n - 1)], 1),
    "random": lambda n, draw: draw(20, n),
}


@pytest.mark.parametrize("family", HARD)
@pytest.mark.parametrize("looks", [True, False])
def test_newton_root__keeps_the_sum_where_whole_features_almost_fill_it(family, looks, monkeypatch):
    """No step is lost on flat parts, nor where n mu is a whole number, or hardly more or less than one."""
    steps = []
    monkeypatch.setattr(transport, "can_look", lambda values: steps.append(1) or looks)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    for n, scale in itertools.product((1, 2, 49, 300), (0.1, 10.0, 1e4)):
        a = scale * HARD[family](n, draw)
        a -= a.amax(1, keepdim=True)
        for mu in (1e-6, 0.3, 24 / 49, 24 / 49 + 1e-12, 24 / 49 - 1e-9, 0.999, 1 - 1e-12):
            share = torch.sigmoid(newton_root(a, torch.tensor(mu, dtype=torch.float64)) + a)
            assert (n * (share.mean(1) - mu)).abs().max() <= 1e-9


def test_newton_root__converges_before_its_last_step():
    """So MOST_STEPS is no bound on the precision: half of them lead to the same root, to the last bit."""
    for family, epsilon, mu in itertools.product(FAMILIES, (5.0, 300.0, 3000.0), MUS):
        a = attract(cost_maps(family, 8, 50), epsilon)[2]
        target = torch.tensor(mu, dtype=torch.float64)
        assert torch.equal(newton_root(a, target, transport.MOST_STEPS // 2), newton_root(a, target))


def test_bracket__holds_the_root_and_is_narrow():
    """Its width does not grow with epsilon, but where whole features fill n mu; that of the extremes of a does."""
    for family, mu in itertools.product(FAMILIES, MUS):
        for epsilon in (5.0, 3000.0):
            a = attract(cost_maps(family, 8, 49), epsilon)[2]
            target = torch.tensor(mu, dtype=torch.float64)
            low, high = bracket(a, target)
            assert (torch.sigmoid(low + a).mean(-1) <= mu + 1e-12).all()
            assert (torch.sigmoid(high + a).mean(-1) >= mu - 1e-12).all()
            assert (high - low).max() <= 10


@pytest.mark.parametrize("family", FAMILIES)
def test_weight_transport__gradient_equals_autodiff_through_the_iteration(family):
    for m, (mu, steps), epsilon in itertools.product((8, 64), ((0.1, 100), (0.3, 300), (0.7, 1000)), (0.5, 5.0)):
        cost = cost_maps(family, m, 49, seeds=1).requires_grad_()
        if family == "bimodal" and epsilon == 5 and mu == 0.3:
            steps = 10_000
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(1, *shape, generator=generator, dtype=torch.float64) for shape in ((49,), (m, 49))]

        def loss(found, weights=weights):
            return sum((part * weight).sum() for part, weight in zip(found, weights, strict=True))

        (ours,) = torch.autograd.grad(loss(weight_transport(cost, mu, epsilon)), cost)
        (theirs,) = torch.autograd.grad(loss(iterated_transport(cost, mu, epsilon, steps, "autodiff")), cost)
        assert (ours - theirs).abs().max() <= 1e-10 * theirs.abs().max()


@pytest.mark.parametrize("epsilon", [5.0, 300.0, 3000.0])
def test_weight_transport__gradient_equals_finite_differences_in_cost_and_mu(epsilon):
    cost = cost_maps("random", 3, 5, seeds=2).requires_grad_()
    mu = torch.tensor(0.45, dtype=torch.float64, requires_grad=True)
    eps = 1e-5 / epsilon
    assert torch.autograd.gradcheck(lambda c, k: weight_transport(c, k, epsilon), (cost, mu), eps=eps, rtol=1e-5)


def paper_gradient(cost: Tensor, rho: Tensor, pi: Tensor, to_rho: Tensor, to_pi: Tensor, mu: float, epsilon: float):
    """Prop. 4.3 with its kappa, and rho inside the Diag, where the derivation has it."""
    n = rho.shape[-1]
    q = rho * to_rho + (pi * to_pi).sum(-2)
    eta, kappa = (rho * to_rho).sum(-1, True) - n * (q * rho).sum(-1, True), 1 - mu - n * (rho * rho).sum(-1, True)
    return -epsilon * (pi * to_pi - n * pi * (q - eta / kappa * rho).unsqueeze(-2)), kappa


def test_weight_transport__gradient_equals_the_corrected_closed_form():
    cost = cost_maps("clustered", 8, 49).requires_grad_()
    rho, pi = weight_transport(cost, 0.3, 5.0)
    to_rho, to_pi = torch.randn_like(rho), torch.randn_like(pi)
    (ours,) = torch.autograd.grad((rho * to_rho).sum() + (pi * to_pi).sum(), cost)
    theirs, _ = paper_gradient(cost.detach(), rho.detach(), pi.detach(), to_rho, to_pi, 0.3, 5.0)
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-14)


def test_weight_transport__gradient_keeps_its_sign_in_hard_selections():
    """Three in ten features are so near that nothing else is chosen: in float32 the paper's kappa is rounding noise."""
    wrong = 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        near = torch.arange(50) < 15
        cost = torch.where(near, 0.1, 1.9) + 0.02 * torch.rand(1, 8, 50, generator=generator, dtype=torch.float64)
        target = torch.randn(1, 50, generator=generator, dtype=torch.float64)
        gradients = []
        for dtype in (torch.float64, torch.float32):
            leaf = cost.to(dtype).requires_grad_()
            rho, pi = weight_transport(leaf, 0.3, 20.0)
            gradients.append(torch.autograd.grad((rho * target).sum(), leaf)[0].double())
            if dtype == torch.float32:
                theirs, _ = paper_gradient(
                    leaf.detach(), rho.detach(), pi.detach(), target.float(), torch.zeros_like(pi), 0.3, 20.0
                )
        exact, ours = gradients
        clear = exact.abs() > 1e-3 * exact.abs().max()
        assert (ours.sign() == exact.sign())[clear].all()
        assert (ours - exact).norm() <= 1e-3 * exact.norm()
        wrong += int((theirs.sign() != exact.sign())[clear].sum())
    assert wrong > 0, "the case is too easy: kappa does not cancel"


def test_weight_transport__gradient_stays_finite_where_the_slopes_underflow():
    cost = torch.where(torch.arange(10) < 3, 0.0, 50.0).expand(1, 4, 10).clone().requires_grad_()
    rho, pi = weight_transport(cost, 0.3, 20.0)
    (gradient,) = torch.autograd.grad((rho * torch.arange(10.0)).sum() + pi.square().sum(), cost)
    assert torch.isfinite(gradient).all()
    assert torch.allclose(rho[0], torch.where(torch.arange(10) < 3, 0.0, 0.1), atol=1e-6)


@pytest.mark.parametrize("mu", [1.0, torch.tensor(1.0, dtype=torch.float64)])
def test_weight_transport__keeps_all_for_mu_1(mu):
    cost = cost_maps("random", 8, 49).requires_grad_()
    rho, pi = weight_transport(cost, mu, 5.0)
    assert torch.equal(rho, torch.zeros_like(rho))
    expected = (-5 * cost).softmax(-2) / 49
    assert torch.allclose(pi, expected, rtol=1e-12)
    to_pi = torch.randn_like(pi)
    ours, theirs = (torch.autograd.grad((plan * to_pi).sum(), cost)[0] for plan in (pi, expected))
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-15)


def test_weight_transport__derivative_in_mu_reaches_1():
    cost = cost_maps("random", 8, 49)
    mu = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    target = torch.randn(49, dtype=torch.float64)
    (ours,) = torch.autograd.grad((weight_transport(cost, mu, 5.0)[0] * target).sum(), mu)
    below = (weight_transport(cost, 1 - 1e-6, 5.0)[0] * target).sum()
    assert torch.isclose(ours, -below / 1e-6, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weight_transport__computes_half_precision_in_float32(dtype):
    cost = cost_maps("random", 64, 196).to(dtype)
    rho, pi = weight_transport(cost, 0.3, 5.0)
    expected = weight_transport(cost.double(), 0.3, 5.0)
    assert rho.dtype == pi.dtype == torch.float32
    for found, exact in zip((rho, pi), expected, strict=True):
        assert (196 / 0.3 * (found - exact)).abs().max() <= 1e-5
    leaf = cost.clone().requires_grad_()
    weight_transport(leaf, 0.3, 5.0)[0].square().sum().backward()
    assert leaf.grad.dtype == dtype and torch.isfinite(leaf.grad).all()


def test_weight_transport__works_in_the_log_domain():
    """exp(-epsilon c) is zero in float32 for every entry here."""
    cost = 100 + cost_maps("random", 8, 49)
    rho, _ = weight_transport(cost.float(), 0.3, 20.0)
    assert (rho - bisected(cost, 0.3, 20.0)[0]).abs().max() < 1e-4


def test_weight_transport__saves_no_step():
    """What backward keeps does not grow with the number of steps; autodiff through the iteration keeps them all."""

    def saved(work) -> int:
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            work()
        return sum(kept)

    cost = cost_maps("random", 8, 49).requires_grad_()
    ours = saved(lambda: weight_transport(cost, 0.3, 5.0))
    assert ours == saved(lambda: iterated_transport(cost, 0.3, 5.0, 1, "closed"))
    assert ours == saved(lambda: iterated_transport(cost, 0.3, 5.0, 1000, "closed"))
    few, many = (saved(lambda k=k: iterated_transport(cost, 0.3, 5.0, k, "autodiff")) for k in (10, 100))
    assert many > 3 * few


@pytest.mark.parametrize("gradient", ["closed", "autodiff"])
def test_iterated_transport__approaches_the_solution(gradient):
    cost = cost_maps("random", 8, 49)
    exact = weight_transport(cost, 0.3, 5.0)
    found = iterated_transport(cost, 0.3, 5.0, 100, gradient)
    assert all(torch.allclose(a, b, atol=1e-13) for a, b in zip(found, exact, strict=True))
    early = iterated_transport(cost, 0.95, 5.0, 25, gradient)[0]
    assert (49 / 0.95 * (early - weight_transport(cost, 0.95, 5.0)[0])).abs().max() > 1e-3


COMPILED = """
import torch
from polygrain.gsp.poolings.generalized_sum import GeneralizedSumPooling
from polygrain.gsp.poolings.transport import weight_transport
compiled = torch.compile(weight_transport, backend="BACKEND", fullgraph=True)
cost = torch.rand(2, 8, 49, generator=torch.Generator().manual_seed(0)).requires_grad_()
results = [function(cost, 0.3, 5.0) for function in (weight_transport, compiled)]
gradients = [torch.autograd.grad(rho.square().sum() + pi.square().sum(), cost)[0] for rho, pi in results]
assert torch.allclose(results[0][0], results[1][0], atol=1e-7)
assert torch.allclose(results[0][1], results[1][1], atol=1e-7)
assert torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-8)
layer, maps = GeneralizedSumPooling(8, 4, 0.3, 5.0), torch.randn(2, 8, 7, 7).requires_grad_()
results = [function(maps) for function in (layer, torch.compile(layer, backend="BACKEND", fullgraph=True))]
gradients = [torch.autograd.grad(pooled.square().sum() + z.square().sum(), maps)[0] for pooled, z in results]
assert torch.allclose(results[0][0], results[1][0], atol=1e-6)
assert torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_weight_transport__compiles_whole(backend):
    """In a process of its own: the shape checks of the other tests cannot be compiled."""
    if backend == "inductor" and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("inductor needs a C++ compiler")
    code = COMPILED.replace("BACKEND", backend)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("mu", [0.0, -0.1, 1.01, math.nan])
def test_weight_transport__refuses_mu(mu):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        weight_transport(torch.rand(2, 3), mu, 5.0)


def test_weight_transport__refuses_bad_values():
    with pytest.raises(ValueError, match="epsilon is 0"):
        weight_transport(torch.rand(2, 3), 0.3, 0.0)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="NaN or infinite"):
            weight_transport(torch.tensor([[1.0, bad]]), 0.3, 5.0)
