"""Weights of a fusion drawn at random: a baseline for learnt ones."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.encoder.model import Model


def weigh_at_random(model: Model, generator: torch.Generator) -> None:
    """From now on the adaptors of each layer weigh, for each image, the softmax of numbers drawn from N(0, 1)."""
    for layer in model.adaptors:
        layer.attend = partial(draw, layer.count, generator)  # type: ignore[method-assign]


def draw(count: int, generator: torch.Generator, h: Tensor, hidden: Tensor) -> Float[Tensor, "batch adaptor"]:
    """In place of `Adaptors.attend`; the generator lives on the CPU, so every device draws the same."""
    return torch.randn(len(h), count, generator=generator).softmax(1).to(h.device)
