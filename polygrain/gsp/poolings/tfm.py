"""A transformer as pooling: a learned token reads the places, layer by layer (TFM-n in GSP's Table 6)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.plain import Pooled


class Transformer(nn.Module):
    """`layers` (1, 2, 4, 8) encoder layers over the places and one learned token, whose output is the vector.

    Places have no position: like every other pooling here it takes a map as a bag of features.
    """

    def __init__(self, channels: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        if layers < 1 or heads < 1 or width % heads:
            raise ValueError(f"layers is {layers}, heads {heads}, width {width}; heads must divide the width")
        self.size = width
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
