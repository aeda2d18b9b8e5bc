"""What every pooling returns, and the poolings without selection: mean, maximum, their sum, generalised mean."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

SMALLEST = 1e-6  # a generalised mean is defined for positive features


class Pooled(NamedTuple):
    """One vector per image; of poolings that select, also the weight by prototype (z, Eq. 4.3) and by place (p)."""

    vector: Float[Tensor, "batch size"]
    attributes: Float[Tensor, "batch prototype"] | None = None
    weights: Float[Tensor, "batch y x"] | None = None


class PerChannel(nn.Module):
    """One number for every channel, with nothing to learn."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.size = channels


class Average(PerChannel):
    """The mean over all places (GAP)."""

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(maps.mean((2, 3)))


class Maximum(PerChannel):
    """The largest value of every channel (GMP)."""

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(maps.amax((2, 3)))


class AverageMaximum(PerChannel):
    """GAP + GMP, added."""

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(maps.mean((2, 3)) + maps.amax((2, 3)))


class GeneralisedMean(nn.Module):
    """(mean x^p)^(1/p) of every channel, with one learned p; features below 1e-6 count as 1e-6."""

    def __init__(self, channels: int, p: float) -> None:
        super().__init__()
        if not p > 0:
            raise ValueError(f"p is {p}; the exponent of a generalised mean must be above 0 (usual: 3)")
        self.size = channels
        self.p = nn.Parameter(torch.tensor(float(p)))

    def mean(self, maps: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "batch channel"]:
        """In float32, because x^p leaves the range of half precision; scaled by the maximum, so that no p overflows."""
        positive = maps.float().clamp_min(SMALLEST)
        largest = positive.detach().amax((2, 3), keepdim=True)
        mean = (positive / largest).pow(self.p).mean((2, 3)).pow(1 / self.p)
        return (mean * largest.flatten(1)).to(maps.dtype)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        return Pooled(self.mean(maps))
