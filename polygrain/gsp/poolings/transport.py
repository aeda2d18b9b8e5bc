"""Which features of a map are worth keeping: GSP's entropic partial transport (P2), solved exactly (Prop. 4.2, 4.3).

The problem has one unknown. With a_j = log sum_i exp(-epsilon c_ij), s the logistic function and n features,

    rho_j = (1 - s(u + a_j)) / n        pi_ij = softmax_i(-epsilon c_ij) s(u + a_j) / n

solve it for the one u with mean_j s(u + a_j) = mu. That mean rises with u, and Newton's method is iterated until it has
arrived, whatever epsilon is. The paper's fixed point u <- u + log mu - log mean s(u + a) converges no faster than mu^k;
it needs from tens of steps to more than a thousand. The gradient follows from the same form. The paper's contains
kappa = 1 - mu - n rho'rho, which cancels to the wrong sign when a selection is hard.

rho, pi = weight_transport(cost, mu, epsilon)        # weights p_j = (1/n - rho_j) / mu = sum_i pi_ij / mu, Eq. 4.1
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

MOST_STEPS = 60  # never met: the hardest problem that was tried takes 23
BLIND_STEPS = 16  # taken where nobody may look whether the root is reached: below 1e-9 for every problem of the tests
BEYOND = 750.0  # from here on s(-x) is 0 in float64
Mu = float | Float[Tensor, ""]


class Split(torch.autograd.Function):
    """(rho, pi) from costs, with one backward for softmax and root together; no step of the root is differentiated."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, cost: Tensor, mu: Tensor, epsilon: float, root: Callable
    ) -> tuple[Tensor, Tensor]:
        attraction, total, a = attract(cost.to(torch.promote_types(cost.dtype, torch.float32)), epsilon)
        check_finite(a)
        x = root(a, mu) + a
        share = torch.sigmoid(x).to(total.dtype)
        ctx.save_for_backward(attraction, total, x.to(total.dtype), share)
        ctx.epsilon, ctx.dtype = epsilon, cost.dtype
        n = share.shape[-1]
        return (1 - share) / n, attraction * (share / (n * total)).unsqueeze(-2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, to_rho: Tensor, to_pi: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        attraction, total, x, share = ctx.saved_tensors
        n = share.shape[-1]
        pulled = attraction * to_pi
        through = pulled.sum(-2) / total
        to_a, to_mu = share_gradient(x, (through - to_rho) / n)
        scale = ctx.epsilon / total
        pulled.mul_((-scale * share / n).unsqueeze(-2))
        pulled.addcmul_(attraction, (scale * (share * through / n - to_a)).unsqueeze(-2))
        return pulled.to(ctx.dtype), to_mu, None, None


def attract(
    cost: Float[Tensor, "*batch prototype feature"], epsilon: float
) -> tuple[Float[Tensor, "*batch prototype feature"], Float[Tensor, "*batch feature"], Float[Tensor, "*batch feature"]]:
    """exp(-epsilon c_ij) up to a factor per feature, its sum over i, and a_j up to a constant per problem; no gradient.

    Their ratio is the softmax; the constant moves u alone. a is float64 whatever the cost is: it has one row per
    problem, and times a sharp epsilon the rounding of float32 would decide which features are chosen.
    """
    nearest = cost.amin(-2, keepdim=True)
    attraction = (nearest - cost).mul_(epsilon).exp_()
    total = attraction.sum(-2)
    nearest = nearest.squeeze(-2).double()
    return attraction, total, total.double().log() + epsilon * (nearest.amin(-1, keepdim=True) - nearest)


def share_gradient(
    x: Float[Tensor, "*batch feature"], gradient: Float[Tensor, "*batch feature"]
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, ""]]:
    """The gradient in a and in mu from that in s(x), x = u + a: s'_j (g_j - sum_k r_k g_k), and n sum_k r_k g_k.

    r_j = s'_j / sum_k s'_k is computed as a softmax of log s', because s' itself underflows in a hard selection.
    """
    log_slope = torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(-x)
    mean = (log_slope.softmax(-1) * gradient).sum(-1, keepdim=True)
    return torch.sigmoid(x) * torch.sigmoid(-x) * (gradient - mean), (x.shape[-1] * mean).sum().double()


def bracket(
    a: Float[Tensor, "*batch feature"], mu: Float[Tensor, ""]
) -> tuple[Float[Tensor, "*batch 1"], Float[Tensor, "*batch 1"]]:
    """Bounds of the u with sum_j s(u + a_j) = n mu, a few units apart unless whole features fill n mu exactly.

    Let a be sorted, the largest first. The first k - 1 features hold less than k - 1, the others at most s(u + a_k)
    each; and the first k hold less than n mu, but at least s(u + a_k) each. Every k bounds u so on both sides.
    """
    n = a.shape[-1]
    a, kept = a.sort(-1, descending=True).values, n * mu
    k = torch.arange(1, n + 1, device=a.device, dtype=a.dtype)
    low = torch.logit(((kept - k + 1) / (n - k + 1)).clamp_min(0)) - a
    high = torch.logit((kept / k).clamp_max(1)) - a
    return low.amax(-1, keepdim=True), high.amin(-1, keepdim=True)


@torch.no_grad()
def newton_root(
    a: Float[Tensor, "*batch feature"], mu: Float[Tensor, ""], steps: int = MOST_STEPS
) -> Float[Tensor, "*batch 1"]:
    """The u with mean_j s(u + a_j) = mu, in float64; for mu = 1 so large that every s(u + a_j) is 1.

    The mean is concave in e^u, its rest to 1 in e^-u. So Newton's steps never pass the root, if they are taken in the
    first from below it and in the second from above; and they cross the flat parts of a hard selection, from which
    plain steps in u would be thrown out of the bracket. float64, on one row per problem, costs nothing and is needed:
    in a hard selection the mean is so flat that float32 would take any u between the chosen features and the others.
    `steps` is the most that are taken, and they end where the root is reached.
    """
    a = a.double()
    low, high = bracket(a, mu.clamp_max(1 - torch.finfo(mu.dtype).eps))
    u = (low + high) / 2
    looks = can_look(a)
    for _ in range(steps if looks else min(steps, BLIND_STEPS)):
        x = u + a
        share = torch.sigmoid(x)
        excess = share.mean(-1, keepdim=True) - mu
        slope = (share * torch.sigmoid(-x)).mean(-1, keepdim=True)
        step = torch.log1p(excess.abs() / slope.clamp_min(torch.finfo(slope.dtype).tiny))
        u = torch.clamp(u - excess.sign() * step, low, high)
        # The error is squared by each step, so one this small was the last; and 1e-15 is the rounding of the mean.
        if looks and bool(((step < 1e-8) | (excess.abs() < 1e-15)).all()):
            break
    return torch.where(mu < 1, u, BEYOND - a.amin(-1, keepdim=True))


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
