"""A backbone from someone else's checkpoint: its wrapper opened, its names timm's, its classifier left out."""

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from polygrain.encoder.weights import fit_tensors
from polygrain.store.reading import reading
from polygrain.store.tensors import read_tensors, require_finite
from polygrain.store.untrusted import require_regular

log = logging.getLogger(__name__)
READABLE = "give a safetensors file or plain tensors, all values finite"
WRAPPERS = ("teacher", "state_dict", "model")
PREFIXES = ("module.", "backbone.", "module.backbone.")
# What most families call it, beside the names that timm has for the architecture.
HEADS = ("head", "fc", "classifier")


def read_checkpoint(file: Path) -> dict[str, Tensor]:
    """The tensors of a file, out of a wrapper such as `teacher` or `state_dict`; no code in it is run.

    ValueError says what is wrong with the file.
    """
    with reading(file, READABLE):
        require_regular(file.stat().st_mode)
    if file.suffix == ".safetensors":
        return read_tensors(file, READABLE)
    try:
        tensors = torch.load(file, "cpu", weights_only=True)
    except Exception as error:  # it raises many types; whatever it was, this file is what must change
        raise ValueError(f"{file} cannot be read as weights ({error}); {READABLE}") from error
    for wrapper in WRAPPERS:
        if isinstance(tensors, dict) and isinstance(tensors.get(wrapper), dict):
            tensors = tensors[wrapper]
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError(f"{file} holds no table of tensors; give the weights alone")
    return tensors


def fill(backbone: nn.Module, file: Path, classifiers: Iterable[str]) -> dict[str, Tensor]:
    """Loads the checkpoint into the network, strictly but for the classifiers, which are returned.

    `classifiers` are names of modules. What lies outside the backbone (a projection head) goes with the backbone's
    prefix. ValueError names tensors that are missing, left over, not finite or of another shape.
    """
    own = backbone.state_dict()
    tensors = translate(bare(read_checkpoint(file), {"blocks", *(name.split(".")[0] for name in own)}), backbone, file)
    heads = tuple(f"{name}." for name in (*HEADS, *classifiers))
    # A part of what is called so may be the network's own, such as ConvNeXt's `head.norm`.
    dropped = {name: tensor for name, tensor in tensors.items() if name.startswith(heads) and name not in own}
    kept = {name: tensor for name, tensor in tensors.items() if name not in dropped}
    with reading(file, READABLE):
        require_finite(kept)
    fit_tensors(backbone, kept, str(file))
    if dropped:
        log.info("%s: left out its classifier, %s", file, ", ".join(sorted(dropped)))
    return dropped


def bare(tensors: dict[str, Tensor], children: set[str]) -> dict[str, Tensor]:
    """The tensors without the prefix that a trainer put before the backbone's children; those without it are left."""
    for prefix in PREFIXES:
        inside = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        if any(name.split(".")[0] in children for name in inside):
            return inside
    return tensors


def translate(tensors: dict[str, Tensor], backbone: nn.Module, file: Path) -> dict[str, Tensor]:
    """The tensors under timm's names and for this input, by what timm has for the network's family."""
    known = getattr(sys.modules[type(backbone).__module__], "checkpoint_filter_fn", None)
    if known is None:
        return tensors
    try:
        return known(tensors, backbone)
    except Exception as error:  # it takes the tensors for what they should be; whatever it was, they are not
        raise ValueError(f"{file} holds no weights of this network ({type(error).__name__}: {error})") from error
