"""OTP: features are carried to prototypes that must receive equal mass, one vector each (Mialon et al. 2021)."""

import math
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from polygrain.config.schema import Factor, Width
from polygrain.gsp.poolings.pooling import Pooled, Pooling
from polygrain.gsp.poolings.prototypes import costs


def balanced_plan(
    cost: Float[Tensor, "batch prototype feature"], epsilon: float, iterations: int
) -> Float[Tensor, "batch prototype feature"]:
    """The entropic plan with equal mass at all prototypes and at all features: Sinkhorn steps in the log domain."""
    scores = -epsilon * cost
    to_prototypes, to_features = -math.log(cost.shape[1]), -math.log(cost.shape[2])
    prototype = torch.zeros_like(cost[:, :, :1])
    for _ in range(iterations):
        feature = to_features - (scores + prototype).logsumexp(1, keepdim=True)
        prototype = to_prototypes - (scores + feature).logsumexp(2, keepdim=True)
    feature = to_features - (scores + prototype).logsumexp(1, keepdim=True)
    return (scores + prototype + feature).exp()


class OTP(Pooling, name="otp"):
    """`prototypes` x `width` numbers: sqrt(m) sum_j pi_ij f_j. In GSP's study 8 x 16 and 64 x 128,
    epsilon 2, 10 iterations.
    """

    takes = "own"

    def __init__(
        self,
        channels: int,
        width: Width,
        prototypes: Width,
        epsilon: Factor,
        iterations: Annotated[int, Field(ge=1, le=10_000)],
    ) -> None:
        super().__init__(width * prototypes)
        self.epsilon, self.iterations = epsilon, iterations
        self.project = nn.Conv2d(channels, width, 1, bias=False)
        self.prototypes = nn.Parameter(nn.init.xavier_uniform_(torch.empty(prototypes, width)))

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        """The plan is computed at least in float32, also under autocast."""
        features = self.project(maps).flatten(2)
        with torch.autocast(maps.device.type, enabled=False):
            wide = features.to(torch.promote_types(features.dtype, torch.float32))
            plan = balanced_plan(costs(wide, self.prototypes.to(wide)), self.epsilon, self.iterations)
            vector = len(self.prototypes) ** 0.5 * plan @ wide.mT
        return Pooled(vector.flatten(1).to(maps.dtype))
