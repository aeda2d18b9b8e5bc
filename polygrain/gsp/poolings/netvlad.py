"""NetVLAD: residuals to soft-assigned centres, one vector per centre (Arandjelovic et al. 2016)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polygrain.config.schema import Width
from polygrain.gsp.poolings.pooling import Pooled, Pooling


class NetVLAD(Pooling, name="netvlad"):
    """`centres` x `width` numbers (8 x 16 and 64 x 128 in GSP's study); each centre's residual has unit length."""

    takes = "own"

    def __init__(self, channels: int, width: Width, centres: Width) -> None:
        super().__init__(width * centres)
        self.project = nn.Conv2d(channels, width, 1, bias=False)
        self.assign = nn.Conv2d(width, centres, 1)
        self.centres = nn.Parameter(nn.init.xavier_uniform_(torch.empty(centres, width)))

    def forward(self, maps: Float[Tensor, "batch channel y x"]) -> Pooled:
        """sum_j a_ij (f_j - c_i) as one product less the assigned mass times c_i: no residual is stored."""
        features = self.project(maps)
        assigned = self.assign(features).softmax(1).flatten(2)
        residuals = assigned @ features.flatten(2).mT - assigned.sum(2, keepdim=True) * self.centres
        return Pooled(nn.functional.normalize(residuals, dim=2).flatten(1))
