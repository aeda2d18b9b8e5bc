"""Tensors into modules, strictly: all of them, no others, of the same shapes."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn

from polygrain.encoder.config import WHOLE_FOLDER
from polygrain.store.reading import reading
from polygrain.store.tensors import read_tensors
from polygrain.store.untrusted import require_plain, require_regular

Shapes = dict[str, tuple[int, ...]]
Built = TypeVar("Built", bound=nn.Module)


def load_module(make: Callable[[], Built], folder: Path) -> Built:
    """What `make` builds from a model folder's config.json, filled with the folder's weights.safetensors.

    The folder may be anyone's, so memory is taken only for what the file of weights holds: its header is compared with
    a module that has shapes and no values, before the module itself is built.
    """
    file = folder / "weights.safetensors"
    held = read_shapes(file)
    try:
        with torch.device("meta"):
            wanted = shapes(make())
    except Exception as error:  # what a network's constructor, or its pass, makes of sizes that contradict each other
        raise ValueError(f"{folder / 'config.json'} describes no model ({error}); {WHOLE_FOLDER}") from error
    compare(wanted, held, str(file))
    module = make()
    load_weights(module, file)
    return module


def read_shapes(file: Path) -> Shapes:
    """The shape of every tensor in a safetensors file, from its header alone."""
    with reading(file, WHOLE_FOLDER):
        require_plain(file)
        try:
            with safe_open(file, "pt") as tensors:
                return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except MemoryError as error:
            raise ValueError(f"it is larger than the memory: {error}") from error


def shapes(module: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def load_weights(module: nn.Module, file: Path, prefix: str = "") -> None:
    """Fills the module from a safetensors file, strictly: all its tensors, no others, same shapes."""
    with reading(file, WHOLE_FOLDER):
        require_regular(file.stat().st_mode)
    tensors = read_tensors(file, WHOLE_FOLDER)
    fit_tensors(module, {prefix + name: tensor for name, tensor in tensors.items()}, str(file))


def fit_tensors(module: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Loads the tensors, or says which are missing, left over or of another shape."""
    compare(shapes(module), {name: tuple(tensor.shape) for name, tensor in tensors.items()}, origin)
    module.load_state_dict(tensors)


def compare(wanted: Shapes, held: Shapes, origin: str) -> None:
    """ValueError with the first few tensors that are missing, left over or of another shape."""
    problems = [f"missing {name}" for name in wanted if name not in held]
    problems += [f"unknown {name[:100]}" for name in held if name not in wanted]
    problems += [
        f"{name} is {held[name]}, the architecture wants {wanted[name]}"
        for name in wanted
        if name in held and held[name] != wanted[name]
    ]
    if problems:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise ValueError(f"{origin} does not fit the encoder: {shown}")
