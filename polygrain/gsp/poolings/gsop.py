"""GSoP: channels and places weighted by their covariances (Gao et al. 2019)."""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from polygrain.config.schema import Width
from polygrain.gsp.poolings.pooling import Pooled, Pooling


def covariance(rows: Float[Tensor, "batch row sample"]) -> Float[Tensor, "batch row row"]:
    """Of the rows, over their samples."""
    centred = rows - rows.mean(2, keepdim=True)
    return centred @ centred.mT / rows.shape[2]


class SecondOrderGate(nn.Module):
    """A gate in 0..1 for each of `outputs`, from a covariance of `rows`: each row has filters of its own."""

    def __init__(self, rows: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.row = nn.Conv2d(rows, 4 * rows, (1, rows), groups=rows)
        self.mix = nn.Linear(4 * rows, outputs)

    def forward(self, matrix: Float[Tensor, "batch row row"]) -> Float[Tensor, "batch output"]:
        normed = self.norm(matrix[:, None]).transpose(1, 2)  # batch row 1 row: each row is a group
        return torch.sigmoid(self.mix(self.row(normed).flatten(1)))


class GSoP(Pooling, name="gsop"):
    """The larger of two gated maps, averaged: one gate per channel, one per place.

    `attention` channels (128) enter the covariances. That of the places needs a fixed number of them: maps are
    averaged to `grid` x `grid` for it, and the gate is brought back to the map's size.
    """

    takes = "embedded"

    def __init__(self, channels: int, attention: Width, grid: Annotated[int, Field(ge=1, le=64)]) -> None:
        super().__init__(channels)
        self.grid = grid
        self.channels_in = nn.Sequential(nn.Conv2d(channels, attention, 1), nn.BatchNorm2d(attention), nn.ReLU())
        self.places_in = nn.Sequential(nn.Conv2d(channels, attention, 1), nn.BatchNorm2d(attention), nn.ReLU())
        self.channel_gate = SecondOrderGate(attention, channels)
        self.place_gate = SecondOrderGate(grid * grid, grid * grid)

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        by_channel = self.channel_gate(covariance(self.channels_in(maps).flatten(2)))
        places = nn.functional.adaptive_avg_pool2d(self.places_in(maps), self.grid).flatten(2)
        by_place = self.place_gate(covariance(places.mT)).view(-1, 1, self.grid, self.grid)
        by_place = nn.functional.interpolate(by_place, size=maps.shape[2:], mode="bilinear", align_corners=False)
        return Pooled(torch.maximum(maps * by_channel[:, :, None, None], maps.relu() * by_place).mean((2, 3)))
