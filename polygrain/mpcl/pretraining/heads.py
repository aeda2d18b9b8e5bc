"""The parts that all frameworks share: the projectors of a run, the momentum copy, and the measures of each head."""

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from polygrain.config.schema import Section, Width
from polygrain.mpcl.pretraining.projectors import MultiProjector, Norm

Reading = Literal["shared", "same", "different"]  # of "several projectors": one hidden layer, or one each
Variant = Literal["plain", "dropout", "mixed", "orthogonal"]  # Table II
View = Float[Tensor, "batch 3 y x"]  # of a batch of images; every framework takes two


class ProjectorParams(Section):
    """The projectors of a framework: one for each head, dropped after the training."""

    hidden: Width = Field(description="hidden units, where the hidden layer is shared or of the same size in all")
    different: list[Width] = Field(
        min_length=1, max_length=64, description="hidden units of each head where they differ, repeated"
    )
    out: int = Field(ge=2, description="dimensions that are compared")
    layers: int = Field(ge=2, le=20, description="linear layers, ReLU between them")
    norm: Norm = Field(description="batch norm: none (MoCo v2), between layers (Barlow Twins), behind all (MoCo v3)")


@dataclass(frozen=True)
class Measured:
    """One step: a loss and an accuracy per head, what PCR compares, and the encoder's features."""

    losses: Float[Tensor, " head"]
    accuracies: Float[Tensor, " head"]
    projections: Float[Tensor, "head batch dim"]
    features: Float[Tensor, "batch feature"]


def build_projectors(
    dim: int, heads: int, reading: Reading, variant: Variant, params: ProjectorParams, dropout: float
) -> MultiProjector:
    """The projectors of a run; `different` repeats its list of sizes as often as there are heads."""
    sizes = [params.different[m % len(params.different)] for m in range(heads)]
    return MultiProjector(
        dim,
        sizes if reading == "different" else params.hidden,
        params.out,
        heads,
        shared=reading == "shared",
        layers=params.layers,
        norm=params.norm,
        dropout=dropout if variant == "dropout" else 0.0,
        start="mixed" if variant == "mixed" else "default",
    )


def momentum_copy(network: nn.Module) -> nn.Module:
    """A copy that is only ever moved by `follow`."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """xi <- m xi + (1 - m) theta for every parameter; batch norms of the copy keep statistics of their own."""
    for xi, theta in zip(slow.parameters(), fast.parameters(), strict=True):
        xi.lerp_(theta, 1 - momentum)
