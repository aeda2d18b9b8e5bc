"""From features to their shares in one differentiable step: distances, softmax and root, with one backward for all.

The plain version is `weight_transport(costs(features, centres), mu, epsilon)`. Much of its time goes into intermediate
maps of `batch prototype feature`; here each is written once and changed in place, and the plan itself is never built.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.gsp.poolings.transport import Mu, attract, check, check_finite, newton_root, share_gradient

SMALLEST_SQUARE = 1e-8  # below it float32 holds no digit of a squared distance


class FusedTransport(torch.autograd.Function):
    """(share, mass, total) as `choose` returns them."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, features: Tensor, centres: Tensor, mu: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        norms = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        scale = norms.clamp_min(1).reciprocal()
        # A matmul of 2 and 3 axes would copy the features into one long matrix.
        cost = torch.bmm(centres.expand(len(features), -1, -1), features).mul_(-2 * scale)
        cost.add_((norms * scale).square()).add_(centres.square().sum(1)[:, None])
        cost.clamp_min_(SMALLEST_SQUARE).sqrt_()
        attraction, total, a = attract(cost, epsilon)
        check_finite(a)
        x = newton_root(a, mu) + a
        share = torch.sigmoid(x).to(total.dtype)
        ctx.save_for_backward(features, centres, cost, attraction, total, scale, x.to(total.dtype), share)
        ctx.epsilon = epsilon
        ctx.set_materialize_grads(False)
        part = (share / share.shape[1]).unsqueeze(2)
        mass = torch.bmm(attraction, part / total.unsqueeze(2))
        return share, mass.squeeze(2), torch.bmm(features, part).squeeze(2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx,
        to_share: Tensor | None,
        to_mass: Tensor | None,
        to_total: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        features, centres, cost, attraction, total, scale, x, share = ctx.saved_tensors
        n = share.shape[1]
        to_mass = attraction.new_zeros(attraction.shape[:2]) if to_mass is None else to_mass / n
        through = torch.bmm(to_mass.unsqueeze(1), attraction).squeeze(1) / total
        to_a = through if to_share is None else through + to_share
        if to_total is not None:
            to_total = to_total / n
            to_a = to_a + torch.bmm(to_total.unsqueeze(1), features).squeeze(1)
        to_a, to_mu = share_gradient(x, to_a)
        # The gradient in the cost, then the same over the cost: a pull along the line from each prototype.
        factor = -ctx.epsilon / total
        rest = (factor * (to_a - share * through)).unsqueeze(1)
        pull = torch.addcmul(rest, to_mass.unsqueeze(2), (factor * share).unsqueeze(1)).mul_(attraction).mul_(cost)
        times_cost = pull.sum(1, keepdim=True)
        pull.div_(cost).div_(cost)
        pulls = pull.sum(1, keepdim=True)
        squares = centres.square().sum(1)
        # Outside the ball only what is across the feature counts, its length has no effect there. The part along it is
        # sum_i pull_ij <w_i, f_j>, and <w, f> is (|w|^2 + 1 - c^2) / 2.
        outside = (torch.bmm(squares.expand(len(pull), 1, -1), pull) + pulls - times_cost) / 2
        along = torch.where(scale < 1, scale * outside, pulls) * scale
        to_features = torch.bmm(centres.T.expand(len(pull), -1, -1), pull).mul_(-scale).addcmul_(features, along)
        if to_total is not None:
            to_features.baddbmm_(to_total.unsqueeze(2), share.unsqueeze(1))
        to_centres = pull.sum((0, 2))[:, None] * centres - torch.bmm(pull.mul_(scale), features.mT).sum(0)
        return to_features, to_centres, to_mu, None


def choose(
    features: Float[Tensor, "batch channel feature"],
    centres: Float[Tensor, "prototype channel"],
    mu: Mu,
    epsilon: float,
) -> tuple[Float[Tensor, "batch feature"], Float[Tensor, "batch prototype"], Float[Tensor, "batch channel"]]:
    """The share of every feature, whose mean is mu, the mass each centre receives, and the mean of share times feature.

    Costs are distances between the centres, which lie in the unit ball, and the features brought into it.
    """
    return FusedTransport.apply(features, centres, check(mu, epsilon, features.device), epsilon)
