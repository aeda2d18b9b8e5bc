"""Any timm network as an encoder that trains: images in 0..1 to one vector each; encoder/model.py saves it."""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
from torch import Tensor, nn

from polygrain.compute import device
from polygrain.encoder.config import Config, read_config
from polygrain.encoder.families import family_of
from polygrain.encoder.families.class_token import ClassToken
from polygrain.encoder.networks import build_network
from polygrain.encoder.weights import load_module


class TrainableEncoder(nn.Module):
    """A ViT's class token after the last norm, or the pooled last map of a CNN; the network is `backbone`."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: Config, precision: device.Precision = "float32") -> None:
        super().__init__()
        self.config, self.precision = config, precision
        self.backbone: Any = build_network(config.architecture, config.kwargs)
        self.family = family_of(self.backbone)
        if config.adaptors is not None:
            raise ValueError("an encoder with adaptors does not train as a whole; give the plain encoder's folder")
        self.register_buffer("mean", torch.tensor(config.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(config.std).view(3, 1, 1), persistent=False)

    @property
    def dim(self) -> int:
        return self.family.width

    @property
    def is_vit(self) -> bool:
        return isinstance(self.family, ClassToken)

    def forward(self, images: Float[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        # Only the network itself runs in half precision: projectors and losses are small, and sensitive.
        with device.autocast(images.device, self.precision):
            x = (images - self.mean) / self.std
            features = self.family.embed(x if self.is_vit else device.for_convolutions(x))
        return features.float()


def fix_patches(network: TrainableEncoder) -> None:
    """Fixes sine-cosine positions and the random patch embedding, as MoCo v3 does; ValueError for a CNN."""
    if not network.is_vit:
        raise ValueError(
            f"{network.config.architecture!r} has no patch embedding to keep fixed: set fixed_patches to false, "
            "or choose a ViT"
        )
    vit = network.backbone
    if not vit.pos_embed.requires_grad:
        return  # fixed already; another draw would not be the start that was kept
    positions = build_sincos2d_pos_embed(vit.patch_embed.grid_size, vit.embed_dim)
    with torch.no_grad():
        vit.pos_embed.zero_()
        vit.pos_embed[0, -len(positions) :] = positions
        # Xavier's law of a linear layer on the pixels of a patch.
        nn.init.xavier_uniform_(vit.patch_embed.proj.weight.flatten(1))
        nn.init.zeros_(vit.patch_embed.proj.bias)
    vit.pos_embed.requires_grad_(False)
    vit.patch_embed.requires_grad_(False)


def load(folder: Path, precision: device.Precision = "float32") -> TrainableEncoder:
    """The network saved in a folder, its weights in float32, on the CPU, as `encoder/model.py` saved it."""
    config = read_config(folder)
    network = load_module(lambda: TrainableEncoder(config, precision), folder)
    return network.float().requires_grad_(True)
