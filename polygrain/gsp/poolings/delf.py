"""DeLF: places weighted by a small learned network (Noh et al. 2017)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.config.schema import Width
from polygrain.gsp.poolings.pooling import Pooled, Pooling


class DeLF(Pooling, name="delf"):
    """softplus(w relu(W f)) weighs each place; `hidden` is the number of rows of W (512)."""

    def __init__(self, channels: int, hidden: Width) -> None:
        super().__init__(channels)
        self.score = nn.Sequential(nn.Conv2d(channels, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, 1, 1), nn.Softplus())

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        """`weights` are the scores brought to sum 1; the vector is the mean of score times feature."""
        scores = self.score(maps)
        weights = scores[:, 0].float() / scores.float().sum((1, 2, 3))[:, None, None]
        return Pooled(torch.mean(maps * scores, (2, 3)), weights=weights)
