"""A linear layer behind an encoder, which a model has learnt or clusters give in closed form."""

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from polygrain.compute.blocks import by_blocks
from polygrain.compute.device import uncast
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.adaptors import in_float32


class LastLayer(nn.Linear):
    """Unit-length embeddings in and out."""

    def forward(self, embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch reduced"]:
        with uncast(embeddings.device):
            return nn.functional.normalize(in_float32(self, embeddings), dim=1)

    def in_front(self, embeddings: Float[np.ndarray, "row reduced"]) -> Float32[np.ndarray, "row axis"]:
        """The features before the layer, as directions within the space that it sees."""
        triangle = np.linalg.qr(self.weight.double().cpu().numpy().T, mode="r")
        back = np.linalg.pinv(triangle, rcond=1e-6)
        return by_blocks(embeddings, lambda some: unit_rows(some @ back), back.shape[1])


@torch.no_grad()
def layer_of(weight: Float[Tensor, "reduced dim"], bias: Float[Tensor, " reduced"], device: torch.device) -> LastLayer:
    """A frozen layer of these values."""
    layer = LastLayer(weight.shape[1], len(weight), device=device).requires_grad_(False)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)
    return layer
