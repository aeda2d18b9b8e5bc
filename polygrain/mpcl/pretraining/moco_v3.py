"""MoCo v3 with several projectors: negatives from the batch itself, a predictor per head, both views ask."""

import math

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from polygrain.compute import processes
from polygrain.config.schema import Section, Temperature, Width
from polygrain.losses.info_nce import batch_contrast
from polygrain.mpcl.pretraining.heads import Measured, ProjectorParams, View, follow, momentum_copy
from polygrain.mpcl.pretraining.optimizer import OptimizerParams
from polygrain.mpcl.pretraining.projectors import MultiProjector, build_mlp
from polygrain.mpcl.trainable import TrainableEncoder, fix_patches
from polygrain.training.whole_batch import whole


class MocoV3Params(Section):
    """MoCo v3: negatives from the batch, a predictor for each head."""

    projector: ProjectorParams = Field(description="the heads' projectors")
    optimizer: OptimizerParams = Field(description="of encoder and heads alike")
    predictor: Width = Field(description="hidden units of each head's predictor")
    temperature: Temperature = Field(description="divides cosines in the softmax")
    momentum: float = Field(
        ge=0, le=1, description="of the momentum copies at the start; a cosine leads to 1 at the end"
    )
    fixed_patches: bool = Field(description="a ViT's patch embedding stays random, its positions are sine and cosine")


class MocoV3(nn.Module):
    """Encoder, projectors and predictors, with a momentum copy of the first two."""

    def __init__(self, encoder: TrainableEncoder, projectors: MultiProjector, params: MocoV3Params) -> None:
        super().__init__()
        if params.fixed_patches:
            fix_patches(encoder)
        self.params = params
        self.encoder, self.projectors = encoder, projectors
        widths = [projectors.out, params.predictor, projectors.out]
        self.predictors = nn.ModuleList([build_mlp(widths, "all", 0.0) for _ in range(projectors.heads)])
        self.slow_encoder, self.slow_projectors = momentum_copy(encoder), momentum_copy(projectors)

    def momentum(self, progress: float) -> float:
        """The momentum after a share `progress` of the training."""
        return 1 - 0.5 * (1 + math.cos(math.pi * progress)) * (1 - self.params.momentum)

    def predict(self, features: Float[Tensor, "batch feature"]) -> Float[Tensor, "head batch dim"]:
        projected = self.projectors(features)
        predicted = [predictor(z) for predictor, z in zip(self.predictors, projected, strict=True)]
        return functional.normalize(torch.stack(predicted).float(), dim=-1)

    def forward(self, first: View, second: View, progress: float, generator: torch.Generator) -> Measured:
        """Each view's predictions are matched with the other view's keys; PCR compares the first view's predictions."""
        features = self.encoder(first)
        asked = [self.predict(features), self.predict(self.encoder(second))]
        with torch.no_grad():
            follow(self.slow_encoder, self.encoder, self.momentum(progress))
            follow(self.slow_projectors, self.projectors, self.momentum(progress))
            keys = [self.slow_projectors(self.slow_encoder(view)).float() for view in (second, first)]
            keys = [whole(functional.normalize(key, dim=-1), 1) for key in keys]
        offset = processes.rank() * len(first)
        both = [batch_contrast(q, k, self.params.temperature, offset) for q, k in zip(asked, keys, strict=True)]
        losses, accuracies = (torch.stack(values) for values in zip(*both, strict=True))
        return Measured(losses.sum(0), accuracies.mean(0), asked[0], features)
