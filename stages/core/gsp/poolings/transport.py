"""Which features of a map are worth keeping: GSP's entropic partial transport (P2), solved exactly (Prop. 4.2, 4.3).

The problem has one unknown. With a_j = log sum_i exp(-epsilon c_ij), s the logistic function and n features,

    rho_j = (1 - s(u + a_j)) / n        pi_ij = softmax_i(-epsilon c_ij) s(u + a_j) / n

solve it for the one u with mean_j s(u + a_j) = mu. That mean rises with u, so Newton's method inside a bracket always
arrives: ten steps reach machine precision. The paper's fixed point u <- u + log mu - log mean s(u + a) converges no
faster than mu^k; it needs from tens of steps to more than a thousand. The gradient follows from the same form. The
paper's contains kappa = 1 - mu - n rho'rho, which cancels to the wrong sign when a selection is hard.

rho, pi = weight_transport(cost, mu, epsilon)        # weights p_j = (1/n - rho_j) / mu = sum_i pi_ij / mu, Eq. 4.1
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

NEWTON_STEPS = 10
Mu = float | Float[Tensor, ""]


class Split(torch.autograd.Function):
    """(rho, pi) from costs, with one backward for softmax and root together; no step of the root is differentiated."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, cost: Tensor, mu: Tensor, epsilon: float, root: Callable
    ) -> tuple[Tensor, Tensor]:
        attraction, total, a = attract(cost.to(torch.promote_types(cost.dtype, torch.float32)), epsilon)
        check_finite(a)
        u = root(a, mu)
        share = torch.sigmoid(u + a).to(a.dtype)
        ctx.save_for_backward(attraction, total, a, mu, u, share)
        ctx.epsilon, ctx.dtype = epsilon, cost.dtype
        n = share.shape[-1]
        return (1 - share) / n, attraction * (share / (n * total)).unsqueeze(-2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, to_rho: Tensor, to_pi: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        attraction, total, a, mu, u, share = ctx.saved_tensors
        n = share.shape[-1]
        pulled = attraction * to_pi
        through = pulled.sum(-2) / total
        to_a, to_mu = share_gradient(a, mu, u, (through - to_rho) / n)
        scale = ctx.epsilon / total
        pulled.mul_((-scale * share / n).unsqueeze(-2))
        pulled.addcmul_(attraction, (scale * (share * through / n - to_a)).unsqueeze(-2))
        return pulled.to(ctx.dtype), to_mu, None, None


def attract(
    cost: Float[Tensor, "*batch prototype feature"], epsilon: float
) -> tuple[Float[Tensor, "*batch prototype feature"], Float[Tensor, "*batch feature"], Float[Tensor, "*batch feature"]]:
    """exp(-epsilon c_ij) up to a factor per feature, its sum over i, and a_j up to a constant per problem; no gradient.

    Their ratio is the softmax; the constant moves u alone, and without it float32 would lose digits to large costs.
    """
    nearest = cost.amin(-2, keepdim=True)
    attraction = (nearest - cost).mul_(epsilon).exp_()
    total = attraction.sum(-2)
    nearest = nearest.squeeze(-2)
    return attraction, total, total.log() + epsilon * (nearest.amin(-1, keepdim=True) - nearest)


def share_gradient(
    a: Float[Tensor, "*batch feature"],
    mu: Float[Tensor, ""],
    u: Float[Tensor, "*batch 1"],
    gradient: Float[Tensor, "*batch feature"],
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, ""]]:
    """The gradient in a and in mu from that in s(u + a): s'_j (g_j - sum_k r_k g_k), and n sum_k r_k g_k.

    r_j = s'_j / sum_k s'_k is computed as a softmax of log s', because s' itself underflows in a hard selection.
    """
    x = (u + a).to(a.dtype)
    # For mu = 1 the root lies at infinity, where s' falls like exp(-a).
    log_slope = torch.where(mu < 1, torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(-x), -a)
    mean = (log_slope.softmax(-1) * gradient).sum(-1, keepdim=True)
    return torch.sigmoid(x) * torch.sigmoid(-x) * (gradient - mean), (a.shape[-1] * mean).sum().to(mu.dtype)


@torch.no_grad()
def newton_root(
    a: Float[Tensor, "*batch feature"], mu: Float[Tensor, ""], steps: int = NEWTON_STEPS
) -> Float[Tensor, "*batch 1"]:
    """The u with mean_j s(u + a_j) = mu, in float64; infinity for mu = 1.

    A step is taken where it stays inside the CLOSED bracket, else the bracket is halved: with strict inequalities
    rounding at the root would bisect away from it. float64, on one row per problem, costs nothing and is needed: in a
    hard selection the mean is so flat that float32 would take any u between the chosen features and the others.
    """
    a = a.double()
    logit = torch.logit(mu.clamp_max(1 - torch.finfo(mu.dtype).eps))
    low, high = logit - a.amax(-1, keepdim=True), logit - a.amin(-1, keepdim=True)
    u = torch.clamp(logit - a.mean(-1, keepdim=True), low, high)
    for _ in range(steps):
        share = torch.sigmoid(u + a)
        mean = share.mean(-1, keepdim=True)
        excess, slope = mean - mu, mean - share.square_().mean(-1, keepdim=True)
        low, high = torch.where(excess < 0, u, low), torch.where(excess < 0, high, u)
        step = u - excess / slope
        inside = (step >= low) & (step <= high)
        # Newton's error is squared by each step: after one this small nothing is left to gain.
        done = can_look(a) and bool((inside & ((step - u).abs() < 1e-8)).all())
        u = torch.where(inside, step, (low + high) / 2)
        if done:
            break
    return torch.where(mu < 1, u, torch.inf)


def fixed_point(a: Float[Tensor, "*batch feature"], mu: Float[Tensor, ""], steps: int) -> Float[Tensor, "*batch 1"]:
    """The paper's u after `steps` iterations from t = e^u = 1 (Prop. 4.2), in the precision of a."""
    u = a.new_zeros(*a.shape[:-1], 1)
    for _ in range(steps):
        u = u + (mu / torch.sigmoid(u + a).mean(-1, keepdim=True)).log().to(a.dtype)
    return u


def can_look(values: Tensor) -> bool:
    """Whether a tensor's numbers may decide what is done next: on a GPU that stalls, in compiled code it cannot be."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def check(mu: Mu, epsilon: float, device: torch.device) -> Float[Tensor, ""]:
    """mu as a tensor in float64; ValueError for mu outside (0, 1] and epsilon <= 0."""
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be above 0 (the paper: 0.5 for proxy losses, 5 for others)")
    if not isinstance(mu, Tensor) or can_look(mu):
        known = mu.item() if isinstance(mu, Tensor) else mu
        if not 0 < known <= 1:
            raise ValueError(f"mu is {known}; the share of features to keep must be above 0 and at most 1")
    return mu.double() if isinstance(mu, Tensor) else torch.full((), mu, device=device, dtype=torch.float64)


def check_finite(values: Float[Tensor, "*shape"]) -> None:
    """ValueError for values that are not finite, where they can be looked at; elsewhere NaN reaches the result."""
    if can_look(values) and not bool(torch.isfinite(values).all()):
        raise ValueError("features or costs have NaN or infinite entries; look for them in the maps and prototypes")


def weight_transport(
    cost: Float[Tensor, "*batch prototype feature"], mu: Mu, epsilon: float
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, "*batch prototype feature"]]:
    """(rho, pi) of P2, exact: the mass left behind at each feature, and that carried from it to each prototype.

    Differentiable in the cost and in mu where that is a tensor. float64 stays, everything else is float32 from here.
    ValueError for mu outside (0, 1], epsilon <= 0 or a cost that is not finite.
    """
    return Split.apply(cost, check(mu, epsilon, cost.device), epsilon, newton_root)


def iterated_transport(
    cost: Float[Tensor, "*batch prototype feature"],
    mu: Mu,
    epsilon: float,
    iterations: int,
    gradient: Literal["closed", "autodiff"],
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, "*batch prototype feature"]]:
    """(rho, pi) as the paper computes them, for comparison: `iterations` of its fixed point, for mu below 1.

    The gradient is the closed form at the last iterate, or autodiff through all of them (Figs. 7 and 9).
    """
    mu = check(mu, epsilon, cost.device)
    if gradient == "closed":
        return Split.apply(cost, mu, epsilon, lambda a, mu: fixed_point(a, mu, iterations))
    scores = -epsilon * cost.to(torch.promote_types(cost.dtype, torch.float32))
    a = scores.logsumexp(-2)
    share = torch.sigmoid(fixed_point(a, mu, iterations) + a)
    n = share.shape[-1]
    return (1 - share) / n, scores.softmax(-2) * share.unsqueeze(-2) / n
