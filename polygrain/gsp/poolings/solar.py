"""SOLAR: every place looks at all others before a generalised mean (Ng et al. 2020)."""

from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.plain import GeneralisedMean
from polygrain.gsp.poolings.pooling import Exponent, Few, Pooled, Pooling


class SOLAR(Pooling, name="solar"):
    """f + W softmax(q'k / sqrt(width)) v over places, then a generalised mean; `reduction` divides the width inside."""

    def __init__(self, channels: int, reduction: Few, p: Exponent) -> None:
        super().__init__(channels)
        if reduction > channels:
            raise ValueError(f"reduction is {reduction}; it must be at most {channels}, the number of channels")
        width = channels // reduction
        self.query = nn.Sequential(nn.Conv2d(channels, width, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.key = nn.Sequential(nn.Conv2d(channels, width, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.value = nn.Conv2d(channels, width, 1)
        self.out = nn.Conv2d(width, channels, 1)
        self.generalised = GeneralisedMean(channels, p)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        query, key, value = (part(maps).flatten(2).mT for part in (self.query, self.key, self.value))
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        return Pooled(self.generalised.mean(maps + self.out(seen.mT.unflatten(2, maps.shape[2:]))))
