"""CBAM before an average: attention over channels, then over places (Woo et al. 2018)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.pooling import Few, Odd, Pooled, Pooling


class CBAM(Pooling, name="cbam"):
    """`reduction` divides the channels inside the channel attention, `kernel` is the side of the spatial convolution.

    GSP's study uses 16 and 3; CBAM itself 16 and 7.
    """

    def __init__(self, channels: int, reduction: Few, kernel: Odd) -> None:
        super().__init__(channels)
        hidden = max(1, channels // reduction)
        self.channel = nn.Sequential(
            nn.Linear(channels, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, channels, bias=False)
        )
        self.spatial = nn.Conv2d(2, 1, kernel, padding=kernel // 2, bias=False)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        gate = torch.sigmoid(self.channel(maps.mean((2, 3))) + self.channel(maps.amax((2, 3))))
        maps = maps * gate[:, :, None, None]
        summary = torch.cat([maps.amax(1, keepdim=True), maps.mean(1, keepdim=True)], 1)
        return Pooled((maps * torch.sigmoid(self.spatial(summary))).mean((2, 3)))
