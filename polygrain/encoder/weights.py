"""Weights into networks, strictly: all tensors, no others, of the same shapes.

They come from a model folder of this project, or from another trainer's checkpoint. No code in a file is run.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn

from polygrain.encoder.config import WHOLE_FOLDER
from polygrain.encoder.families import family_of
from polygrain.store.reading import reading
from polygrain.store.tensors import read_tensors, require_finite

log = logging.getLogger(__name__)
READABLE = "give a safetensors file or plain tensors, all values finite"
# Names under which trainers store a network, the best first.
WRAPPERS = ("teacher", "model_ema", "state_dict_ema", "ema", "state_dict", "model_state_dict", "model", "network")
COUNTER = "num_batches_tracked"
MANY = 5  # problems that a message names
# The classifier's names in most families, beside those that timm has for the architecture.
HEADS = ("head", "fc", "classifier")

Shapes = dict[str, tuple[int, ...]]
Built = TypeVar("Built", bound=nn.Module)


def load_module(make: Callable[[], Built], folder: Path) -> Built:
    """The module that `make` builds from a model folder's config.json, with the folder's weights.safetensors.

    The header of the weights is compared first, so that no config.json asks for more memory than the weights fill.
    """
    file = folder / "weights.safetensors"
    with reading(file, WHOLE_FOLDER), safe_open(file, "pt") as stream:
        held = {name: tuple(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118
    try:
        with torch.device("meta"):
            expected = shapes(make())
    except Exception as error:  # constructors raise any type
        raise ValueError(f"{folder / 'config.json'} describes no model ({error}); {WHOLE_FOLDER}") from error
    require_same(expected, held, str(file))
    module = make()
    fit_tensors(module, read_tensors(file, WHOLE_FOLDER), str(file))
    return module


def fit_tensors(module: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Loads the tensors; ValueError says which are missing, left over or of another shape."""
    require_same(shapes(module), {name: tuple(tensor.shape) for name, tensor in tensors.items()}, origin)
    module.load_state_dict(tensors)


def shapes(module: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def require_same(expected: Shapes, held: Shapes, origin: str) -> None:
    """ValueError with the first few tensors that differ."""
    missing, unknown = (list(a.keys() - b.keys()) for a, b in ((expected, held), (held, expected)))
    if len(missing) > MANY and len(unknown) > MANY:
        raise ValueError(
            f"{origin} does not fit the encoder: it holds {min(unknown):.100}, {max(unknown):.100} and so on, the "
            f"architecture has {min(missing)}, {max(missing)} and so on"
        )
    problems = [f"missing {name}" for name in expected if name not in held]
    problems += [f"unknown {name[:100]}" for name in held if name not in expected]
    problems += [
        f"{name} is {held[name]}, the architecture wants {shape}"
        for name, shape in expected.items()
        if held.get(name, shape) != shape
    ]
    if problems:
        shown = "; ".join(problems[:MANY]) + (f"; and {len(problems) - MANY} more" if len(problems) > MANY else "")
        raise ValueError(f"{origin} does not fit the encoder: {shown}")


def read_checkpoint(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors or torch file, out of a wrapper such as `teacher`; ValueError says what is wrong."""
    if file.suffix == ".safetensors":
        return read_tensors(file, READABLE)
    with reading(file, READABLE):
        size = file.stat().st_size
    try:
        tensors = torch.load(file, "cpu", weights_only=True)
    except Exception as error:  # torch raises any type, and advises to allow code
        raise ValueError(
            f"{file} ({size:,} bytes) cannot be read as weights: it is damaged, or holds more than tensors; {READABLE}"
        ) from error
    while isinstance(tensors, dict) and (wrapper := next((w for w in WRAPPERS if is_table(tensors.get(w))), None)):
        tensors = tensors[wrapper]
    if not is_table(tensors) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError(f"{file} holds no table of tensors; give the weights alone")
    return tensors


def is_table(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def fill(backbone: nn.Module, file: Path, classifiers: Iterable[str]) -> None:
    """Loads another trainer's checkpoint, under its own names, but for the classifiers.

    `classifiers` are names of modules. ValueError for tensors that are missing, left over, not finite or of another
    shape.
    """
    own = backbone.state_dict()
    tensors = without_wrapper(read_checkpoint(file), own)
    try:
        tensors = family_of(backbone).translated(tensors)
    except Exception as error:  # it expects the tensors of this family
        raise ValueError(f"{file} holds no weights of this network ({type(error).__name__}: {error})") from error
    heads = tuple(f"{name}." for name in (*HEADS, *classifiers))
    # The network may have such a module itself: ConvNeXt's `head.norm`.
    dropped = [name for name in tensors if name.startswith(heads) and name not in own]
    selected = {name: tensor for name, tensor in tensors.items() if name not in dropped}
    # Batches that a norm has seen: only its training asks for them, and many savers leave them out.
    counters = {name: tensor for name, tensor in own.items() if name.endswith(COUNTER)}
    selected |= {name: tensor for name, tensor in counters.items() if name not in selected}
    with reading(file, READABLE):
        require_finite(selected)
    fit_tensors(backbone, selected, str(file))
    if dropped:
        log.info("%s: left out its classifier, %s", file, ", ".join(sorted(dropped)))


def without_wrapper(tensors: dict[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """The tensors below the prefix by which most names become the network's own; others are dropped.

    A teacher is taken before a student. Published names of a family differ from timm's, so where no name is the same
    the names of the network's parts count.
    """
    parts = {"blocks", *(name.split(".")[0] for name in own)}
    exact, alike = Counter({"": 0}), Counter({"": 0})
    for name in tensors:
        for cut in (0, *(place + 1 for place, letter in enumerate(name) if letter == ".")):
            exact[name[:cut]] += name[cut:] in own
            alike[name[:cut]] += name[cut:].split(".")[0] in parts
    # The first of equals: the shortest, for names are cut from the front.
    best = max(exact, key=lambda prefix: (exact[prefix], alike[prefix], "teacher" in prefix))
    return {name.removeprefix(best): tensor for name, tensor in tensors.items() if name.startswith(best)}
