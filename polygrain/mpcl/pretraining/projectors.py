"""Several projectors over one encoder (MPCL, section III-A), in both readings of the paper.

Table III's parameter counts (27.97, 28.23, 28.75, 29.80 M on a ResNet-50) grow by one output layer per head: the hidden
layer is shared. Tables I and VII speak of hidden sizes that differ: there each head has layers of its own.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["none", "inner", "all"]
Start = Literal["default", "mixed"]


def build_mlp(widths: Sequence[int], norm: Norm, dropout: float) -> nn.Sequential:
    """Linear layers between the widths, ReLU between them.

    `norm`: `none` as in MoCo v2 has biases instead. `inner` (Barlow Twins) adds batch norm before each ReLU, `all`
    (MoCo v3) also one without parameters at the end. `dropout` follows each ReLU.
    """
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        last = i == len(widths) - 2
        layers.append(nn.Linear(fan_in, fan_out, bias=norm == "none"))
        if norm == "all" or (norm == "inner" and not last):
            layers.append(nn.BatchNorm1d(fan_out, affine=not last))
        if not last:
            layers.append(nn.ReLU())
        if dropout and not last:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


class MultiProjector(nn.Module):
    """Projections of one feature by `heads` projectors: `batch dim` in, `head batch out` out, not normalised.

    `shared`: all but the last layer is common, and the heads' last layers lie side by side in one matrix. Otherwise
    each head is a network of its own, and `hidden` may list the size of each. `start` = `mixed` (Table II) draws every
    other head by Kaiming's law, the rest by Xavier's.
    """

    def __init__(
        self,
        dim: int,
        hidden: int | Sequence[int],
        out: int,
        heads: int,
        *,
        shared: bool = True,
        layers: int = 2,
        norm: Norm = "none",
        dropout: float = 0.0,
        start: Start = "default",
    ) -> None:
        super().__init__()
        sizes = [hidden] * heads if isinstance(hidden, int) else list(hidden)
        self.heads, self.out, self.shared = heads, out, shared
        if shared:
            networks = [build_mlp([dim, *[sizes[0]] * (layers - 1), heads * out], norm, dropout)]
        else:
            networks = [build_mlp([dim, *[size] * (layers - 1), out], norm, dropout) for size in sizes]
        self.networks = nn.ModuleList(networks)
        if start == "mixed":
            self.draw_mixed()

    def forward(self, features: Float[Tensor, "batch dim"]) -> Float[Tensor, "head batch out"]:
        if self.shared:
            return self.networks[0](features).unflatten(1, (self.heads, self.out)).transpose(0, 1)
        return torch.stack([network(features) for network in self.networks])

    @torch.no_grad()
    def draw_mixed(self) -> None:
        """Draws the matrices of each head alone anew: by Kaiming's normal law for even heads, Xavier's for odd ones."""
        for m, matrices in enumerate(self.own_matrices()):
            for matrix in matrices:
                if m % 2:
                    nn.init.xavier_normal_(matrix)
                else:
                    nn.init.kaiming_normal_(matrix, nonlinearity="relu")

    def own_matrices(self) -> list[list[Tensor]]:
        """The matrices of each head alone, from input to output; views, where they are blocks of a shared one."""
        linear = [[layer for layer in network.children() if isinstance(layer, nn.Linear)] for network in self.networks]
        if self.shared:
            return [[block] for block in linear[0][-1].weight.split(self.out)]
        return [[layer.weight for layer in layers] for layers in linear]

    def overlap(self) -> Float[Tensor, ""]:
        """Mean squared cosine between rows of different heads' first own matrices; 0 = orthogonal, or a single head.

        These are the orthogonal weights of Table II, which gives no formula.
        """
        rows = [functional.normalize(matrices[0], dim=1) for matrices in self.own_matrices()]
        sums = [(rows[i] @ rows[j].T).square().mean() for i in range(self.heads) for j in range(i + 1, self.heads)]
        return torch.stack(sums).mean() if sums else rows[0].new_zeros(())
