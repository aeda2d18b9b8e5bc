"""The structure of a network: its blocks, the layout of their outputs, and how an embedding is pooled from them."""

import contextlib
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

Place = tuple[nn.Module, str]  # a container, and a key in it


class Shapes(NamedTuple):
    """The shapes of the outputs of each block, of the last layer, and of the head that pools it."""

    blocks: list[torch.Size]
    last: torch.Size
    head: torch.Size


class Family:
    """timm's common form: maps or tokens, pooled by the network's own head.

    A family that differs is a subclass with a file of its own, and claims its networks.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network: Any = network
        patches = getattr(network, "patch_embed", None)
        self.is_convolutional = patches is None
        # All blocks are alike and take patches; Swin and its kind have stages.
        self.is_transformer = patches is not None and hasattr(network, "blocks")
        self.patches: int | None = getattr(patches, "num_patches", None)
        # The side of a patch, px, of which the input is a multiple.
        sides = getattr(patches, "patch_size", 1)
        self.patch: int = max(sides) if isinstance(sides, tuple) else sides
        # Tokens, which come first, that are no patch of the image: class token and registers.
        self.prefix: int = getattr(network, "num_prefix_tokens", 0)
        # The axis of channels in a map.
        self.channel = 3 if getattr(network, "output_fmt", "NCHW") == "NHWC" else 1

    @classmethod
    def claims(cls, network: nn.Module) -> bool:
        return True

    @property
    def width(self) -> int:
        """The width of an embedding: some heads widen the pooled features (MobileNetV3 and later)."""
        return int(getattr(self.network, "head_hidden_size", self.network.num_features))

    @property
    def stages(self) -> int:
        """The number of stages or blocks that `forward_intermediates` counts."""
        return len(getattr(self.network, "feature_info", None) or self.network.blocks)

    @property
    def classifiers(self) -> tuple[str, ...]:
        """The names of the modules that classify, under which a checkpoint has their weights."""
        names = getattr(self.network, "pretrained_cfg", {}).get("classifier") or ()
        return (names,) if isinstance(names, str) else tuple(names)

    def translated(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """A checkpoint's tensors under timm's names, positions resized, by the function that timm has for a family."""
        translate = getattr(sys.modules[type(self.network).__module__], "checkpoint_filter_fn", None)
        return translate(tensors, self.network) if translate else tensors

    def unfuse(self) -> None:
        """Lets attention multiply plainly."""
        for module in self.network.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = False

    def fix_side(self, side: int) -> None:
        """Makes a network that is built for one side one for another, px, if it can be."""
        if hasattr(self.network, "set_input_size"):
            self.network.set_input_size(img_size=side)

    def places(self) -> list[Place]:
        """The place of each residual block, in the order of the forward pass: `blocks`, or ResNet's layers."""
        lists = [
            module
            for name, module in self.network.named_modules()
            if re.fullmatch(r"(.*\.)?blocks|layer[1-4]", name) and isinstance(module, nn.Sequential | nn.ModuleList)
        ]
        places: list[Place] = []
        for parent in lists:
            for key, child in parent._modules.items():
                # MobileNet keeps stages of blocks in `blocks`.
                is_stage = isinstance(child, nn.Sequential)
                places += [(child, inner) for inner in child._modules] if is_stage else [(parent, key)]
        return places

    def blocks(self) -> list[nn.Module]:
        """The residual blocks in the order of the forward pass."""
        return [parent.get_submodule(key) for parent, key in self.places()]

    def embed(self, x: Tensor) -> Float[Tensor, "batch dim"]:
        """The embedding, not normalised, of a normalised input."""
        return self.head(self.network.forward_features(x))

    def head(self, last: Tensor) -> Float[Tensor, "batch dim"]:
        """The embedding from the output of `forward_features`."""
        return self.network.forward_head(last, pre_logits=True)

    def mean(self, output: Tensor) -> Float[Tensor, "batch dim"]:
        """The mean of a map over its places, or of the patches' tokens."""
        if output.ndim == 4:
            return output.mean((1, 2) if self.channel == 3 else (2, 3))
        return output[:, self.prefix :].mean(1)

    def pooled(self, output: Tensor) -> Float[Tensor, "batch dim"]:
        """One vector from a block's output, as from the network's last.

        Tokens go through the network's last norm, as in the probes of Caron et al., "Emerging properties in
        self-supervised vision transformers", 2021.
        """
        if output.ndim == 4:
            return self.mean(output)
        tokens = getattr(self.network, "norm", nn.Identity())(output)
        return getattr(self.network, "fc_norm", nn.Identity())(self.mean(tokens))

    @torch.no_grad()
    def shapes(self, side: int) -> Shapes:
        """The shapes for one image of a side, px."""
        blocks, device = self.blocks(), next(self.network.parameters()).device
        with outputs_of(blocks) as outputs:
            last = self.network.forward_features(torch.zeros(1, 3, side, side, device=device))
        return Shapes([outputs[block].shape for block in blocks], last.shape, self.head(last).shape)

    def dims(self, side: int) -> list[int]:
        """The number of channels after each block."""
        return [shape[self.channel if len(shape) == 4 else -1] for shape in self.shapes(side).blocks]

    def lower(self, side: int) -> list[tuple[int, int]]:
        """The blocks that may be part of the embedding, the last first, as (place in `places`, channels).

        The last block's output is the embedding itself, but for a norm, unless a convolution widens it (MobileNet).
        Blocks count from the end while their output is pooled like the last layer: as many tokens of as many numbers,
        or a map with sides that can be told from its channels.
        """
        blocks, last, head = self.shapes(side)
        if head[-1] != self.network.num_features:
            return []
        lower = []
        for place, shape in reversed(list(enumerate(blocks))):
            sides = [length for axis, length in enumerate(shape) if axis not in (0, self.channel)]
            if not (shape == last if len(last) == 3 else len(shape) == len(last) == 4 and sides[0] == sides[1]):
                break
            lower.append((place, shape[-1] if len(shape) == 3 else shape[self.channel]))
        return lower[1:] if lower and lower[0][1] == self.network.num_features else lower


@contextlib.contextmanager
def outputs_of(blocks: Sequence[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """The output of each of the blocks, once a forward pass has run within the context, in this thread."""
    outputs: dict[nn.Module, Tensor] = {}
    thread = threading.get_ident()

    def keep(block: nn.Module, _: object, output: Tensor) -> None:
        if threading.get_ident() == thread:
            outputs[block] = output

    handles = [block.register_forward_hook(keep) for block in blocks]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
