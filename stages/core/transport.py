"""Which features of a map are worth keeping: GSP's entropic partial transport (P2), solved exactly (Prop. 4.2, 4.3).

The problem has one unknown. With a_j = log sum_i exp(-epsilon c_ij), s the logistic function and n features,

    rho_j = (1 - s(u + a_j)) / n        pi_ij = softmax_i(-epsilon c_ij) s(u + a_j) / n

solve it for the one u with mean_j s(u + a_j) = mu. That mean rises with u, so Newton's method inside a bracket always
arrives: ten steps reach machine precision where the paper's fixed point needs from tens of steps to more than a
thousand (u <- u + log mu - log mean s(u + a), which converges no faster than mu^k). The gradient follows from the
same form without the paper's kappa = 1 - mu - n rho'rho, which cancels to the wrong sign when a selection is hard.

share, attraction = select(cost, mu, epsilon)        # weights p_j = share_j / (n mu), Eq. 4.1
rho, pi = weight_transport(cost, mu, epsilon)
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

NEWTON_STEPS = 10
Mu = float | Float[Tensor, ""]


class Share(torch.autograd.Function):
    """s(u + a) at the root u of mean_j s(u + a_j) = mu, with the derivative of that root (no step is differentiated).

    r_j = s'_j / sum_k s'_k is computed as a softmax of log s', because s' itself underflows in a hard selection.
    """

    @staticmethod
    def forward(a: Tensor, mu: Tensor, u: Tensor) -> Tensor:
        return torch.sigmoid(u + a).to(a.dtype)

    @staticmethod
    def setup_context(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        a, mu, u = ctx.saved_tensors
        x = (u + a).to(a.dtype)
        # For mu = 1 the root lies at infinity, where s' falls like exp(-a).
        log_slope = torch.where(mu < 1, torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(-x), -a)
        mean = (log_slope.softmax(-1) * gradient).sum(-1, keepdim=True)
        slope = torch.sigmoid(x) * torch.sigmoid(-x)
        to_mu = (a.shape[-1] * mean).sum() if ctx.needs_input_grad[1] else None
        return slope * (gradient - mean), to_mu, None


@torch.no_grad()
def newton_root(a: Float[Tensor, "*batch feature"], mu: Float[Tensor, ""], steps: int) -> Float[Tensor, "*batch 1"]:
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
        excess = share.mean(-1, keepdim=True) - mu
        slope = (share - share.square()).mean(-1, keepdim=True)
        low, high = torch.where(excess < 0, u, low), torch.where(excess < 0, high, u)
        step = u - excess / slope
        u = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
    return torch.where(mu < 1, u, torch.inf)


def fixed_point(a: Float[Tensor, "*batch feature"], mu: Float[Tensor, ""], steps: int) -> Float[Tensor, "*batch 1"]:
    """The paper's u after `steps` iterations from t = e^u = 1 (Prop. 4.2), in the precision of a."""
    u = a.new_zeros(*a.shape[:-1], 1)
    for _ in range(steps):
        u = u + (mu / torch.sigmoid(u + a).mean(-1, keepdim=True)).log().to(a.dtype)
    return u


def prepare(
    cost: Float[Tensor, "*batch prototype feature"], mu: Mu, epsilon: float
) -> tuple[Float[Tensor, "*batch prototype feature"], Float[Tensor, ""]]:
    """-epsilon c up to a constant per problem, at least float32, and mu in float64; ValueError for bad values.

    Whether a cost is NaN is asked on the CPU only, outside compiled code: on a GPU the answer would stall the device;
    there NaN reaches the result.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be above 0 (the paper: 0.5 for proxy losses, 5 for others)")
    if not torch.compiler.is_compiling() and cost.device.type == "cpu":
        known = mu.item() if isinstance(mu, Tensor) else mu
        if not 0 < known <= 1:
            raise ValueError(f"mu is {known}; the share of features to keep must be above 0 and at most 1")
        if not bool(torch.isfinite(cost).all()):
            raise ValueError("the cost has NaN or infinite entries; look for them in the feature map and prototypes")
    cost = cost if cost.dtype == torch.float64 else cost.float()
    # Constant shifts move u alone; without this one, float32 would lose digits to large costs.
    scores = (cost.detach().amin((-2, -1), keepdim=True) - cost) * epsilon
    mu = mu if isinstance(mu, Tensor) else torch.full((), mu, dtype=torch.float64, device=cost.device)
    return scores, mu.double()


def select(
    cost: Float[Tensor, "*batch prototype feature"], mu: Mu, epsilon: float, steps: int = NEWTON_STEPS
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, "*batch prototype feature"]]:
    """The selected share s(u + a_j) of every feature (its mean is mu), and softmax_i(-epsilon c_ij), which splits it.

    Differentiable in the cost and in mu where that is a tensor. float64 stays, everything else is float32 from here.
    """
    scores, mu = prepare(cost, mu, epsilon)
    a = scores.logsumexp(-2)
    return Share.apply(a, mu, newton_root(a, mu, steps)), scores.softmax(-2)


def plan(
    share: Float[Tensor, "*batch feature"], attraction: Float[Tensor, "*batch prototype feature"]
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, "*batch prototype feature"]]:
    """(rho, pi): mass left behind at every feature, and mass carried from feature to prototype; all of it sums to 1."""
    n = share.shape[-1]
    return (1 - share) / n, attraction * share.unsqueeze(-2) / n


def weight_transport(
    cost: Float[Tensor, "*batch prototype feature"], mu: Mu, epsilon: float
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, "*batch prototype feature"]]:
    """(rho, pi) of P2, exact. ValueError for mu outside (0, 1], epsilon <= 0 or a cost that is not finite."""
    return plan(*select(cost, mu, epsilon))


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
    scores, mu = prepare(cost, mu, epsilon)
    a = scores.logsumexp(-2)
    if gradient == "autodiff":
        share = torch.sigmoid(fixed_point(a, mu, iterations) + a)
    else:
        share = Share.apply(a, mu, fixed_point(a.detach(), mu.detach(), iterations))
    return plan(share, scores.softmax(-2))
