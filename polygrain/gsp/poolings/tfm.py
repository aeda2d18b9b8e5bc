"""A transformer as pooling: a learned token reads the places, layer by layer (TFM-n in GSP's Table 6)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.config.schema import Width
from polygrain.gsp.poolings.pooling import Few, Pooled, Pooling


class Transformer(Pooling, name="tfm"):
    """`layers` (1, 2, 4, 8) encoder layers over the places and one learned token, whose output is the vector.

    Places have no position: like every other pooling here it takes a map as a bag of features.
    """

    takes = "own"

    def __init__(self, channels: int, width: Width, layers: Few, heads: Few) -> None:
        super().__init__(width)
        if width % heads:
            raise ValueError(f"width is {width} and heads {heads}; heads must divide the width")
        self.project = nn.Conv2d(channels, width, 1)
        self.token = nn.Parameter(0.02 * torch.randn(width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        places = self.project(maps).flatten(2).mT
        tokens = torch.cat([self.token.to(places.dtype).expand(len(places), 1, -1), places], 1)
        for layer in self.layers:
            tokens = layer(tokens)
        return Pooled(self.norm(tokens[:, 0]))
