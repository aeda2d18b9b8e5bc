"""Which features of a map to keep: GSP's entropic partial transport (P2), solved exactly (Prop. 4.2, 4.3).

The problem has one unknown, u. With a_j = log sum_i exp(-epsilon c_ij), the logistic function s and n features,

    rho_j = (1 - s(u + a_j)) / n        pi_ij = softmax_i(-epsilon c_ij) s(u + a_j) / n

where u solves mean_j s(u + a_j) = mu. The mean rises with u, and Newton's method finds u in a few steps for any
epsilon. The paper's fixed point u <- u + log mu - log mean s(u + a) converges no faster than mu^k: it needs tens of
steps to more than a thousand. The paper's gradient contains kappa = 1 - mu - n rho'rho, which cancels to the wrong sign
when a selection is hard; the gradient here has no kappa.

rho, pi = weight_transport(cost, mu, epsilon)       # weights p_j = (1/n - rho_j) / mu, Eq. 4.1
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

MOST_STEPS = 60  # the hardest problem tried takes 23
BLIND_STEPS = 16  # without a look at the error; then it is below 1e-9 in every problem of the tests
BEYOND = 750.0  # s(-x) is 0 in float64 from here on


def weight_transport(
    cost: Float[Tensor, "*batch prototype feature"], mu: float, epsilon: float
) -> tuple[Float[Tensor, "*batch feature"], Float[Tensor, "*batch prototype feature"]]:
    """(rho, pi) of P2: the mass that stays at each feature, and the mass moved from it to each prototype.

    float64 stays; other types become float32. ValueError for mu outside (0, 1], epsilon <= 0 and costs that are not
    finite.
    """
    check(mu, epsilon)
    attraction, total, a = attract(cost.to(torch.promote_types(cost.dtype, torch.float32)), epsilon)
    share = Share.apply(a, mu).to(total.dtype)
    n = share.shape[-1]
    return (1 - share) / n, attraction * (share / (n * total)).unsqueeze(-2)


def check(mu: float, epsilon: float) -> None:
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be above 0 (the paper: 0.5 for proxy losses, 5 for others)")
    if not 0 < mu <= 1:
        raise ValueError(f"mu is {mu}; the share of features to keep must be above 0 and at most 1")


def attract(
    cost: Float[Tensor, "*batch prototype feature"], epsilon: float
) -> tuple[Float[Tensor, "*batch prototype feature"], Float[Tensor, "*batch feature"], Float[Tensor, "*batch feature"]]:
    """exp(-epsilon c_ij) up to a factor per feature, its sum over i, and a_j up to a constant per problem.

    attraction / sum is the softmax; the constant only moves u. a is float64: times a sharp epsilon, the rounding of
    float32 would decide which features are chosen. ValueError on the CPU for costs that are not finite.
    """
    nearest = cost.detach().amin(-2, keepdim=True)
    attraction = (nearest - cost).mul_(epsilon).exp_()
    total = attraction.sum(-2)
    nearest = nearest.squeeze(-2).double()
    a = total.double().log() + epsilon * (nearest.amin(-1, keepdim=True) - nearest)
    if can_look(a) and not bool(torch.isfinite(a).all()):
        raise ValueError("features or costs have NaN or infinite entries; look for them in the maps and prototypes")
    return attraction, total, a


def can_look(values: Tensor) -> bool:
    """Whether Python may read the values: on a GPU it would wait for them."""
    return values.device.type == "cpu"


def bracket(
    a: Float[Tensor, "*batch feature"], mu: float
) -> tuple[Float[Tensor, "*batch 1"], Float[Tensor, "*batch 1"]]:
    """Bounds of the u with sum_j s(u + a_j) = n mu, a few units apart unless whole features fill n mu exactly.

    Sort a, largest first. The first k - 1 features hold less than k - 1, and each other one at most s(u + a_k): that
    bounds u from below. The first k features hold less than n mu, and each at least s(u + a_k): that bounds it above.
    """
    n = a.shape[-1]
    a = a.sort(-1, descending=True).values
    k = torch.arange(1, n + 1, device=a.device, dtype=a.dtype)
    low = torch.logit(((n * mu - k + 1) / (n - k + 1)).clamp_min(0)) - a
    high = torch.logit((n * mu / k).clamp_max(1)) - a
    return low.amax(-1, keepdim=True), high.amin(-1, keepdim=True)


@torch.no_grad()
def newton_root(a: Float[Tensor, "*batch feature"], mu: float, can_stop: bool) -> Float[Tensor, "*batch 1"]:
    """The u with mean_j s(u + a_j) = mu, in float64; for mu = 1 so large that every s(u + a_j) is 1.

    The mean is concave in e^u, and 1 - mean in e^-u. So Newton's steps never pass the root if they are taken in e^u
    from below it and in e^-u from above; they also cross the flat parts of a hard selection, where plain steps in u
    would leave the bracket. `can_stop` says whether to end where the root is reached, which reads the error.
    """
    if mu == 1:
        return BEYOND - a.amin(-1, keepdim=True)
    low, high = bracket(a, min(mu, 1 - torch.finfo(a.dtype).eps))
    u = (low + high) / 2
    for _ in range(MOST_STEPS if can_stop else BLIND_STEPS):
        x = u + a
        share = torch.sigmoid(x)
        excess = share.mean(-1, keepdim=True) - mu
        slope = (share * torch.sigmoid(-x)).mean(-1, keepdim=True)
        step = torch.log1p(excess.abs() / slope.clamp_min(torch.finfo(slope.dtype).tiny))
        u = torch.clamp(u - excess.sign() * step, low, high)
        # Each step squares the error, so a step this small was the last; 1e-15 is the rounding of the mean.
        if can_stop and bool(((step < 1e-8) | (excess.abs() < 1e-15)).all()):
            break
    return u


def share_gradient(
    x: Float[Tensor, "*batch feature"], gradient: Float[Tensor, "*batch feature"]
) -> Float[Tensor, "*batch feature"]:
    """The gradient in a from that in s(x), x = u + a: s'_j (g_j - sum_k r_k g_k) with r_j = s'_j / sum_k s'_k.

    r is a softmax of log s', because s' underflows in a hard selection.
    """
    mean = ((logsigmoid(x) + logsigmoid(-x)).softmax(-1) * gradient).sum(-1, keepdim=True)
    return torch.sigmoid(x) * torch.sigmoid(-x) * (gradient - mean)


class Share(torch.autograd.Function):
    """s(u + a) for the root u; no step of the root is differentiated."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: float) -> Tensor:
        x = newton_root(a, mu, can_look(a)) + a
        ctx.save_for_backward(x)
        return torch.sigmoid(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return share_gradient(x, gradient), None
