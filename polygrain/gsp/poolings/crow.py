"""CroW: places weighted by their total activation, channels by their rarity (Kalantidis et al. 2016)."""

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.gsp.poolings.pooling import Pooled, Pooling

SMALLEST = 1e-12


class CroW(Pooling, name="crow"):
    """Nothing is learned. Negative features count as zero.

    CroW counts how often a channel is above zero; here, as in GSP's study, the mean of its logistic stands for that
    count, because training needs a gradient.
    """

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        maps = maps.relu()
        total = maps.sum(1, keepdim=True)
        places = (
            (total / total.square().sum((2, 3), keepdim=True).clamp_min(SMALLEST).sqrt()).clamp_min(SMALLEST).sqrt()
        )
        common = torch.sigmoid(maps).mean((2, 3))
        rarity = (common.sum(1, keepdim=True) / common).log()
        return Pooled((maps * places).mean((2, 3)) * rarity)
