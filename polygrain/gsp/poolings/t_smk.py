"""The aggregation of HOW: smoothed features weighted by their own length (Tolias et al. 2020; T-SMK in GSP)."""

from jaxtyping import Float
from torch import Tensor, nn

from polygrain.gsp.poolings.pooling import Odd, Pooled, Pooling


class NormWeighted(Pooling, name="t_smk"):
    """mean of |f| times the mean of f's `window` x `window` neighbours inside the map; nothing is learned.

    The lengths are attention, not features: no gradient runs through them.
    """

    def __init__(self, channels: int, window: Odd) -> None:
        super().__init__(channels)
        self.window = window

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        smooth = nn.functional.avg_pool2d(maps, self.window, 1, self.window // 2, count_include_pad=False)
        lengths = maps.detach().float().norm(dim=1)
        weights = lengths / lengths.sum((1, 2), keepdim=True).clamp_min(1e-12)
        return Pooled((smooth * lengths[:, None].to(maps.dtype)).mean((2, 3)), weights=weights)
