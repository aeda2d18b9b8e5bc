"""Prepares frozen networks for inference: folds batch norms into convolutions, and sets channels_last.

A convolution keeps its own weights, for state dicts and files, beside the folded ones.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from polygrain.encoder.families import family_of

Pair = tuple[str, str]


class Convolution:
    """A convolution that computes with the norm behind it."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]

    @property
    def weight(self) -> Tensor:
        if self._parameters["weight"].requires_grad:
            raise ValueError("this network is frozen, its batch norms are folded: `restore` it before it trains")
        return self._buffers["folded_weight"]

    @property
    def bias(self) -> Tensor:
        return self._buffers["folded_bias"]


class Norm:
    """The rest of a folded norm: timm's has an activation, too."""

    act: nn.Module
    drop: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(x)) if hasattr(self, "act") else x


@functools.cache
def mixed(part: Any, kind: Any) -> Any:
    return type(kind.__name__, (part, kind), {})


class Uses(TorchDispatchMode):
    """Counts how many operators take each of the tensors in `of`, by their id."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[int, Tensor] = {}
        self.count: Counter[int] = Counter()

    def __torch_dispatch__(
        self, operator: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count.update(id(value) for value in _pytree.tree_leaves((args, kwargs)) if id(value) in self.of)
        return operator(*args, **(kwargs or {}))


@torch.no_grad()
def pairs(network: nn.Module, images: Tensor) -> list[Pair]:
    """The names of each convolution and the norm that alone takes its output; both run once in a forward pass.

    The network may be on the device `meta`.
    """
    from timm.layers.conv2d_same import Conv2dSame  # their subclasses compute something else
    from timm.layers.norm_act import BatchNormAct2d

    uses, makers, taken = Uses(), {}, {}
    runs: Counter[str] = Counter()

    def convolved(name: str, output: Tensor) -> None:
        runs[name] += 1
        makers[id(output)], uses.of[id(output)] = name, output  # kept, so that no other tensor gets its id

    def normed(name: str, given: Tensor) -> None:
        runs[name] += 1
        taken[name] = id(given) if id(given) in makers else None

    handles = []
    for name, module in network.named_modules():
        if type(module) in (nn.Conv2d, Conv2dSame):
            handles.append(module.register_forward_hook(lambda _m, _i, output, name=name: convolved(name, output)))
        elif type(module) in (nn.BatchNorm2d, BatchNormAct2d) and module.running_var is not None:
            handles.append(module.register_forward_pre_hook(lambda _m, inputs, name=name: normed(name, *inputs)))
    try:
        with uses:
            family_of(network).embed(images)
    finally:
        for handle in handles:
            handle.remove()
    found = [(makers[given], norm, uses.count[given]) for norm, given in taken.items() if given]
    return [(made, norm) for made, norm, count in found if count == runs[made] == runs[norm] == 1]


def prepare(network: nn.Module, folded: Iterable[tuple[nn.Module, nn.Module]], is_convolutional: bool) -> None:
    """Folds the norms of frozen convolutions, and orders the weights of a network of convolutions channels last."""
    for convolution, norm in folded:
        fold(convolution, norm)
    if is_convolutional:
        network.to(memory_format=torch.channels_last)


@torch.no_grad()
def fold(convolution: Any, norm: Any) -> None:
    """Folds the norm behind a convolution into it; the norm becomes the identity.

    In float64, so that a CPU and a GPU come to the same weights.
    """
    own = convolution._parameters
    scale = (norm.running_var.double() + norm.eps).rsqrt() * (1 if norm.weight is None else norm.weight.double())
    shift = (0 if own["bias"] is None else own["bias"].double()) - norm.running_mean.double()
    bias = shift * scale + (0 if norm.bias is None else norm.bias.double())
    weight = own["weight"].double() * scale[:, None, None, None]
    for name, values in (("folded_weight", weight), ("folded_bias", bias)):
        convolution.register_buffer(name, values.to(own["weight"].dtype), persistent=False)
    if not isinstance(convolution, Convolution):
        convolution.__class__ = mixed(Convolution, convolution.__class__)
        norm.__class__ = mixed(Norm, norm.__class__)


def restore(network: nn.Module) -> nn.Module:
    """The network as it was before `prepare`, to be trained."""
    for module in network.modules():
        if isinstance(module, Convolution):
            del module.folded_weight, module.folded_bias
        if isinstance(module, Convolution | Norm):
            module.__class__ = type(module).__bases__[1]
    return network.to(memory_format=torch.contiguous_format)


def settle(network: nn.Module) -> None:
    """Leaves only the folded weights of a prepared network, for a program."""
    for module in network.modules():
        if isinstance(module, Convolution):
            values = {"weight": module.weight, "bias": module.bias}
            del module.folded_weight, module.folded_bias
            module.__class__ = type(module).__bases__[1]
            for name, value in values.items():
                setattr(module, name, nn.Parameter(value, requires_grad=False))
        elif isinstance(module, Norm):
            for name in [*module._parameters, *module._buffers]:
                delattr(module, name)
    network.to(memory_format=torch.contiguous_format)
