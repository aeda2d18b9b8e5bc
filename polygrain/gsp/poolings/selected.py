"""GSP alone, before a generalised mean or a maximum, and beside a maximum (GSP, 4.1, Alg. 2 and 5.2)."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.config.schema import Factor, Share, Width
from polygrain.gsp.poolings.plain import GeneralisedMean
from polygrain.gsp.poolings.pooling import Exponent, Pooled, Pooling, Takes
from polygrain.gsp.poolings.prototypes import Selection


def weighted_sum(
    maps: Float[Tensor, "batch channel y x"], weights: Float[Tensor, "batch y x"]
) -> Float[Tensor, "batch channel"]:
    """sum_j p_j f_j, Eq. 4.1, in the type of the map."""
    return torch.matmul(maps.flatten(2), weights.flatten(1).unsqueeze(2).to(maps.dtype)).squeeze(2)


class SelectedSum(Pooling, name="gsp"):
    """sum_j p_j f_j. Costs are measured in `space`, a map of the same places with `space` channels, or in the map."""

    takes: ClassVar[Takes] = "embedded"

    def __init__(self, channels: int, prototypes: Width, mu: Share, epsilon: Factor, space: int | None = None) -> None:
        super().__init__(channels)
        self.selection = Selection(space or channels, prototypes, mu, epsilon)

    def combine(
        self, maps: Float[Tensor, "batch channel y x"], weights: Float[Tensor, "batch y x"], total: Tensor
    ) -> Float[Tensor, "batch channel"]:
        """The vector; `total` is the weighted sum."""
        return total

    def forward(
        self, maps: Float[Tensor, "batch channel y x"], space: Float[Tensor, "batch space y x"] | None = None
    ) -> Pooled:
        weights, attributes, total = self.selection.pool(maps if space is None else space)
        total = total.to(maps.dtype) if space is None else weighted_sum(maps, weights)
        return Pooled(self.combine(maps, weights, total), attributes, weights)


class SelectedMaximum(SelectedSum, name="gmp_gsp"):
    """GMP+GSP: the selected sum plus the maximum over all places."""

    takes = "both"

    def combine(
        self, maps: Float[Tensor, "batch channel y x"], weights: Float[Tensor, "batch y x"], total: Tensor
    ) -> Float[Tensor, "batch channel"]:
        return total + maps.amax((2, 3))


class ScaledMaximum(SelectedSum, name="gsp_gmp"):
    """The maximum of the map whose places are scaled by n p_j, as GSP's public code pools for LIBC."""

    takes = "both"

    def combine(
        self, maps: Float[Tensor, "batch channel y x"], weights: Float[Tensor, "batch y x"], total: Tensor
    ) -> Float[Tensor, "batch channel"]:
        scale = weights.unsqueeze(1) * weights[0].numel()
        return (maps.to(scale) * scale).amax((2, 3)).to(maps.dtype)


class SelectedMean(SelectedSum, name="gemean_gsp"):
    """GeMean+GSP: the generalised mean of the map whose places are scaled by n p_j, which average 1 (Alg. 2)."""

    takes = "both"

    def __init__(
        self, channels: int, prototypes: Width, mu: Share, epsilon: Factor, p: Exponent, space: int | None = None
    ) -> None:
        super().__init__(channels, prototypes, mu, epsilon, space)
        self.generalised = GeneralisedMean(channels, p)

    def combine(
        self, maps: Float[Tensor, "batch channel y x"], weights: Float[Tensor, "batch y x"], total: Tensor
    ) -> Float[Tensor, "batch channel"]:
        scale = weights.unsqueeze(1) * weights[0].numel()
        return self.generalised.mean(maps.to(scale) * scale).to(maps.dtype)
