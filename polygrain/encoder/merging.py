"""Adaptor sets side by side in one model."""

import torch

from polygrain.encoder.adaptors import fuse
from polygrain.encoder.config import AdaptorConfig, Attention, Fusion
from polygrain.encoder.model import Model


def merge(
    models: list[Model],
    names: list[str],
    fusion: Fusion,
    generator: torch.Generator,
    std: float,
    attention: Attention | None = None,
) -> Model:
    """One model with all adaptor sets in every block; all have the same encoder."""
    widths = {model.config.adaptors.width for model in models}
    if len(widths) > 1:
        raise ValueError(
            f"the adaptor sets have different widths {sorted(widths)}; reproduce them all with one adaptor.width"
        )
    attention = attention or Attention()
    layers = fuse([model.adaptors for model in models], fusion, generator, std, attention)
    fused = models[0].without_adaptors()
    fused.insert(layers, AdaptorConfig(names=names, width=widths.pop(), fusion=fusion, attention=attention))
    return fused.requires_grad_(False).eval()
