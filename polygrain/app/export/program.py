"""A model as one graph of plain operators, images in, embeddings out, which each target writes."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from polygrain.compute.errors import first_line
from polygrain.encoder import Model
from polygrain.encoder.config import Config, Interpolation
from polygrain.encoder.prepare import settle
from polygrain.store.rectangle import LONGEST

log = logging.getLogger(__name__)
INPUT = "images"
FREE = {2: "height", 3: "width"}

Length = int | torch.SymInt


class Seen(Model):
    """A model behind the scaling of its input."""

    def network_input(self, images: Float[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch 3 y x"]:
        return (images - self.mean) / self.std


class Program(nn.Module):
    """The model's forward, and the mean of a collection taken from its embeddings; `free`: of any height and width.

    It scales by matrices, since ONNX has no scaling with antialiasing that is torch's.
    """

    def __init__(self, model: Model, mean: Sequence[float] = (), free: bool = False) -> None:
        super().__init__()
        self.register_buffer("collection", torch.tensor(mean) if mean else None)
        self.config = model.config
        side, shape = self.config.side, "whole" if free else "crop"
        self.model = Seen(self.config.model_copy(update={"size": side, "resize": side, "scaled": None, "shape": shape}))
        self.model.load_state_dict(model.state_dict())
        for copy, layer in zip(self.model.adaptors, model.adaptors, strict=True):
            copy.masked.copy_(layer.masked)
        is_other = not free and self.config.kwargs.get("img_size", side) != side
        if is_other:
            self.model.family.fix_side(side)  # position embeddings scaled once, not in every pass
        settle(self.model)
        self.is_turned = free and plain_pads(self.model)
        self.step = self.model.family.patch if free else 1
        self.requires_grad_(False).eval()

    def forward(self, images: Num[Tensor, "batch 3 y x"]) -> Float[Tensor, "batch dim"]:
        x = images.float() / 255 if images.dtype == torch.uint8 else images
        if self.config.scaled or self.step > 1:
            # Without a branch: the shorter side is `size` px, and so it comes to `side`.
            unit = self.config.size * self.step
            size = [self.step * ((2 * self.config.side * length + unit) // (2 * unit)) for length in x.shape[2:]]
            x = scaled(x, size, self.config.interpolation, antialias=True).clamp(0, 1)
        embeddings = self.model(x.flip(2, 3) if self.is_turned else x)
        if self.collection is None:
            return embeddings
        return nn.functional.normalize(embeddings - self.collection, dim=1)


def scaled(
    x: Float[Tensor, "batch channel y x"],
    size: Sequence[Length],
    mode: Interpolation = "bicubic",
    antialias: bool = False,
    **_: object,
) -> Float[Tensor, "batch channel height width"]:
    """Images or maps as torch's `interpolate` scales them with antialiasing."""
    if not antialias:
        raise ValueError("it scales its maps without antialiasing")
    rows, columns = (scaling(given, wanted, mode) for given, wanted in zip(x.shape[2:], size, strict=True))
    return rows @ x @ columns.T


def scaling(given: Length, wanted: Length, mode: Interpolation = "bicubic") -> Float[Tensor, "wanted given"]:
    """The matrix that scales a column of pixels; in operators alone, for lengths that a trace does not know."""
    ratio = torch.ones(given).sum() / torch.ones(wanted).sum()
    centres = (torch.arange(wanted) + 0.5) * ratio
    away = ((torch.arange(given) + 0.5 - centres[:, None]) / ratio.clamp(min=1)).abs()
    if mode == "bilinear":
        weights = (1 - away).clamp(min=0)
    else:
        near, far = (1.5 * away - 2.5) * away * away + 1, ((2.5 - 0.5 * away) * away - 4) * away + 2
        weights = torch.where(away < 1, near, torch.where(away < 2, far, 0.0))
    return weights / weights.sum(1, keepdim=True)


def plain_pads(network: nn.Module) -> bool:
    """Gives convolutions of TensorFlow's padding, which timm computes in Python, a plain one that holds for any side;
    whether the network now takes images upside down, mirrored.

    At a stride of 2, TensorFlow's pads are those of torch at the far ends, and one less at the near ends of even sides:
    of the turned image with turned weights they are torch's own.
    """
    from timm.layers.conv2d_same import Conv2dSame

    strided = [module for module in network.modules() if getattr(module, "stride", 1) not in (1, (1, 1))]
    same: list[Any] = [module for module in network.modules() if isinstance(module, Conv2dSame)]
    if not same or not {*strided} <= {*same} or not all(map(can_turn, same)):
        return False
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.flip(2, 3)
    for module in same:
        module.__class__, module.padding = nn.Conv2d, tuple(length // 2 for length in module.kernel_size)
    return True


def can_turn(convolution: nn.Conv2d) -> bool:
    is_odd = all(length > 1 and length % 2 for length in convolution.kernel_size)
    return is_odd and convolution.stride in ((1, 1), (2, 2)) and convolution.dilation == (1, 1)


def trace(model: Model, uint8: bool, mean: Sequence[float] = ()) -> ExportedProgram:
    """The program of a model for any number of images: uint8, or float32 in 0..1; `mean` of their collection.

    Of a model that sees images whole it takes rectangles, where the network and torch allow it.
    """
    config = model.config
    # The first answer builds a network, which torch cannot trace: it is given here, and kept.
    takes_other_sides = model.takes_other_sides
    if config.shape == "whole" and takes_other_sides:
        try:
            return traced(model, uint8, mean, free=True)
        except Exception as error:  # torch raises a dozen kinds
            log.warning("%s is exported for square inputs only (%s)", config.architecture, first_line(error))
    try:
        return traced(model, uint8, mean, free=False)
    except Exception as error:  # and all mean that it cannot export this network
        raise ValueError(
            f"torch cannot export {config.architecture!r} ({first_line(error)}); `polygrain embed` still works"
        ) from error


def traced(model: Model, uint8: bool, mean: Sequence[float], free: bool) -> ExportedProgram:
    side, kind = model.config.size, torch.uint8 if uint8 else torch.float32
    axes = {0: Dim("batch")}
    if free:
        axes |= {axis: Dim(name, min=side, max=longest(model.config)) for axis, name in FREE.items()}
    example = torch.zeros(2, 3, side, 2 * side if free else side, dtype=kind)
    # Networks scale their position embeddings by torch's own function.
    with mock.patch.object(nn.functional, "interpolate", scaled) if free else contextlib.nullcontext():
        program = torch.export.export(
            Program(model, mean, free),
            (example,),
            dynamic_shapes=(axes,),
            prefer_deferred_runtime_asserts_over_guards=free,
        )
    if free:
        program.module()(example[..., :side])  # some networks assert that it is no square
    return program


def longest(config: Config) -> int:
    """The longest side of a model's input, px."""
    return (LONGEST - 1) * config.resize + config.size


def has_free_sides(program: ExportedProgram) -> bool:
    """Whether it takes rectangles."""
    (images,) = (node for node in program.graph.nodes if node.name == INPUT)
    return isinstance(images.meta["val"].shape[2], torch.SymInt)
