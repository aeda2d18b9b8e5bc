"""Barlow Twins with several projectors: no negatives and no momentum copy; dimensions should not repeat each other.

The paper does not say what the accuracy of a head is here, which the balance of heads needs: it is the share of images
whose second view is nearest to the first among the second views of the batch.
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from polygrain.config.schema import Factor, Section, Weight
from polygrain.losses.barlow_twins import barlow_twins, standardise
from polygrain.mpcl.pretraining.heads import Measured, ProjectorParams, View
from polygrain.mpcl.pretraining.optimizer import OptimizerParams
from polygrain.mpcl.pretraining.projectors import MultiProjector
from polygrain.mpcl.trainable import TrainableEncoder
from polygrain.training.whole_batch import whole


class BarlowTwinsParams(Section):
    """Barlow Twins: no negatives; dimensions should not repeat each other."""

    projector: ProjectorParams = Field(description="the heads' projectors")
    optimizer: OptimizerParams = Field(description="of encoder and heads alike")
    beta: Weight = Field(description="weight of the off-diagonal correlations")
    scale: Factor = Field(description="factor on the loss")


@torch.no_grad()
def match(z1: Float[Tensor, "batch dim"], z2: Float[Tensor, "batch dim"]) -> Float[Tensor, ""]:
    """The share of images whose own second view is the nearest (by cosine, after standardising each dimension)."""
    first, second = (functional.normalize(standardise(z.float()), dim=1) for z in (z1, z2))
    return ((first @ second.T).argmax(1) == torch.arange(len(z1), device=z1.device)).float().mean()


class BarlowTwins(nn.Module):
    """Encoder and projectors; the correlations are those of the whole batch over all devices."""

    def __init__(self, encoder: TrainableEncoder, projectors: MultiProjector, params: BarlowTwinsParams) -> None:
        super().__init__()
        self.params = params
        self.encoder, self.projectors = encoder, projectors

    def forward(self, first: View, second: View, progress: float, generator: torch.Generator) -> Measured:
        # Each view goes through alone: batch norm must not see both members of a pair at once.
        features = self.encoder(first)
        projections = self.projectors(features).float()
        others = self.projectors(self.encoder(second)).float()
        pairs = list(zip(whole(projections, 1), whole(others, 1), strict=True))
        losses = torch.stack([self.params.scale * barlow_twins(a, b, self.params.beta) for a, b in pairs])
        return Measured(losses, torch.stack([match(a, b) for a, b in pairs]), projections, features)
