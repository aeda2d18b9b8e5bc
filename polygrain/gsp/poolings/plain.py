"""The poolings without selection: mean, maximum, their sum, generalised mean."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.pooling import Exponent, Pooled, Pooling

SMALLEST = 1e-6  # a generalised mean is defined for positive features


class Average(Pooling, name="gap"):
    """The mean over all places (GAP)."""

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(maps.mean((2, 3)))


class Maximum(Pooling, name="gmp"):
    """The largest value of every channel (GMP)."""

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(maps.amax((2, 3)))


class AverageMaximum(Pooling, name="gap_gmp"):
    """GAP + GMP, added."""

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(maps.mean((2, 3)) + maps.amax((2, 3)))


class GeneralisedMean(Pooling, name="gemean"):
    """(mean x^p)^(1/p) of every channel, with one learned p; features below 1e-6 count as 1e-6."""

    def __init__(self, channels: int, p: Exponent) -> None:
        super().__init__(channels)
        self.p = nn.Parameter(torch.tensor(float(p)))

    def mean(self, maps: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "batch channel"]:
        """In float32, because x^p leaves the range of half precision; scaled by the maximum, so that no p overflows."""
        positive = maps.float().clamp_min(SMALLEST)
        largest = positive.detach().amax((2, 3), keepdim=True)
        mean = (positive / largest).pow(self.p).mean((2, 3)).pow(1 / self.p)
        return (mean * largest.flatten(1)).to(maps.dtype)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(self.mean(maps))
