"""Weights of a fusion drawn at random, in place of equal or learnt ones: what they change, any weights could."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from polygrain.encoder.model import Model


def weigh_at_random(model: Model, generator: torch.Generator) -> None:
    """From now on the adaptors of each layer weigh, for each image, the softmax of numbers drawn from N(0, 1)."""
    for layer in model.adaptors:
        layer.attend = partial(draw, layer.count, generator)


def draw(count: int, generator: torch.Generator, h: Tensor, hidden: Tensor) -> Float[Tensor, "batch adaptor"]:
    """In place of `Adaptors.attend`; the generator lives on the CPU, so every device draws the same."""
    return torch.randn(len(h), count, generator=generator).softmax(1).to(h.device)


def skip(model: Model, batches: int, size: int) -> None:
    """Draws the weights of some batches and drops them: the next batch gets what it would get behind them."""
    for _ in range(batches):
        for layer in model.adaptors * (2 if model.config.mirrored else 1):
            layer.attend(torch.empty(size, 0), torch.empty(0))
