"""A timm network as images -> feature map: convolutional, or a transformer without its class token."""

import math
from pathlib import Path
from typing import Any, Literal

import timm
import torch
from jaxtyping import Float, Num
from pydantic import Field, model_validator
from torch import Tensor, nn

from polygrain.compute.device import for_convolutions
from polygrain.config.schema import Deviation, Mean, Section, Text
from polygrain.encoder import model, networks, prepare, weights
from polygrain.encoder.families import family_of
from polygrain.gsp.folds import bn_inception, resnet20  # noqa: F401  timm knows them from here on


class Backbone(Section):
    """Which network, where its weights come from, and where in it the map is taken."""

    weights: Literal["encoder", "file", "pretrained", "random"] = Field(
        description="of the stage encoder, of a file, of timm (which may download), or a random start"
    )
    path: Text = Field(description="the weights for `file`; else any file that exists")
    architecture: networks.Architecture | None = Field(description="a timm name; null for `encoder`")
    mean: list[Mean] | None = Field(min_length=3, max_length=3, description="of the input, in 0..1; null: timm's own")
    std: list[Deviation] | None = Field(
        min_length=3, max_length=3, description="of the input, in 0..1; null: timm's own"
    )
    depth: int | None = Field(
        ge=1, le=256, description="take the map behind this many blocks or stages; null: behind the last"
    )
    is_trained: bool = Field(description="false: the network is frozen, and only what follows it is trained")
    freezes_norm: bool = Field(description="batch norm keeps its statistics and weights; false suits a random start")

    @model_validator(mode="after")
    def architecture_fits(self) -> "Backbone":
        if (self.architecture is None) != (self.weights == "encoder"):
            raise ValueError("architecture must be null for weights: encoder, and a timm name for all others")
        if self.architecture is not None:
            networks.build_on_meta(self.architecture, {})
        return self

    @property
    def title(self) -> str:
        """The network's name in a table."""
        starts = {"pretrained": "", "file": ", weights of a file", "random": ", random start"}
        return "the encoder" if self.weights == "encoder" else f"{self.architecture}{starts[self.weights]}"


class Trunk(nn.Module):
    """Images in 0..1 to `batch channel y x`."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: Any, mean: Tensor, std: Tensor, params: Backbone) -> None:
        super().__init__()
        self.network: Any = network
        self.depth, self.is_trained = params.depth, params.is_trained
        self.freezes_norm = params.freezes_norm
        self.register_buffer("mean", mean.view(-1, 1, 1), persistent=False)
        self.register_buffer("std", std.view(-1, 1, 1), persistent=False)
        self.requires_grad_(params.is_trained)
        for norm in self.frozen_norms():
            norm.requires_grad_(False)
        self.train(False)

    def frozen_norms(self) -> list[nn.Module]:
        norms = (module for module in self.network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))
        return list(norms) if self.freezes_norm else []

    def train(self, mode: bool = True) -> "Trunk":
        """Training mode for all but frozen norms, if the network trains."""
        super().train(mode and self.is_trained)
        for norm in self.frozen_norms():
            norm.eval()
        return self

    def forward(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch channel row column"]:
        """The map. A transformer's tokens are laid out as the image was cut, each with mean 0 and variance 1.

        Before its last norm, a transformer's tokens have no fixed scale.
        """
        x = for_convolutions((images - self.mean) / self.std)
        if self.depth is None:
            maps = self.network.forward_features(x)
        else:
            (maps,) = self.network.forward_intermediates(
                x, indices=[self.depth - 1], norm=False, stop_early=True, intermediates_only=True
            )
        if maps.ndim == 3:
            tokens = maps[:, family_of(self.network).prefix :]
            maps = tokens.transpose(1, 2).unflatten(2, [math.isqrt(tokens.shape[1])] * 2)
        if family_of(self.network).is_transformer:
            maps = nn.functional.layer_norm(maps.movedim(1, -1), maps.shape[1:2]).movedim(-1, 1)
        return maps


def load(params: Backbone, encoder: Path, seed: int) -> Trunk:
    """The network with its weights, on the CPU. Only `pretrained` may download, through timm.

    ValueError for an architecture that timm cannot build, and for weights that do not fit it.
    """
    if params.weights == "encoder":
        whole = model.load(encoder)
        mean, std = torch.tensor(whole.config.mean), torch.tensor(whole.config.std)
        network: Any = prepare.restore(whole.backbone) if params.is_trained else whole.backbone
    else:
        torch.manual_seed(seed)  # timm draws its start from the global generator
        network = create(params)
        mean, std = (
            torch.tensor(given or network.pretrained_cfg[name])
            for name, given in (("mean", params.mean), ("std", params.std))
        )
        classifiers = family_of(network).classifiers
        network.reset_classifier(0)
        if params.weights == "file":
            weights.fill(network, Path(params.path), classifiers)
    count = family_of(network).stages
    if params.depth is not None and params.depth > count:
        raise ValueError(f"depth is {params.depth}; this network has {count} blocks or stages: choose 1 to {count}")
    return Trunk(network, mean, std, params)


def create(params: Backbone) -> Any:
    try:
        return timm.create_model(str(params.architecture), pretrained=params.weights == "pretrained")
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"timm cannot build {params.architecture!r}: {error}") from error
