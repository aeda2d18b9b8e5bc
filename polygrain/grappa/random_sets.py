"""Adaptor sets drawn at random, put into a plain encoder to be trained together (M+A_1 and M*(random) of Grappa)."""

import torch
from torch import nn

from polygrain.encoder.adaptors import start_attention
from polygrain.encoder.config import AdaptorConfig, Attention
from polygrain.encoder.model import Model


def insert_random(
    model: Model, count: int, width: int, attention: Attention, std: float, seed: int, up_std: float = 0.0
) -> nn.ModuleList:
    """Inserts `count` near-identity sets, fused by attention if there are several; returns all of them, layer by layer.

    `std` is that of Q and K, `up_std` of the up-projections. What LARS trains must not start at zero: it would take the
    first gradients as they are, and measure every later step by the size that these (so the scale of the loss) give.
    """
    torch.manual_seed(seed)  # nn.Linear draws from the global generator; nothing else here does
    names = [f"random{i + 1}" for i in range(count)]
    fusion = "average" if count == 1 else "attention"
    config = AdaptorConfig(names=names, width=width, fusion=fusion, attention=attention)
    model.insert(model.new_adaptors(config), config)
    generator = torch.Generator().manual_seed(seed)
    for layer in model.adaptors:
        start_attention(layer, generator, std)
        nn.init.normal_(layer.up, 0, up_std, generator=generator)
    return nn.ModuleList(model.adaptors)
