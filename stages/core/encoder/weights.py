"""Tensors into modules, strictly: all of them, no others, of the same shapes."""

from pathlib import Path

from torch import Tensor, nn

from stages.core.encoder.config import WHOLE_FOLDER
from stages.core.store.tensors import read_tensors


def load_weights(module: nn.Module, file: Path, prefix: str = "") -> None:
    """Fills the module from a safetensors file, strictly: all its tensors, no others, same shapes."""
    tensors = read_tensors(file, WHOLE_FOLDER)
    fit_tensors(module, {prefix + name: tensor for name, tensor in tensors.items()}, str(file))


def fit_tensors(module: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Loads the tensors, or says which are missing, left over or of another shape."""
    expected = module.state_dict()
    problems = [f"missing {name}" for name in expected if name not in tensors]
    problems += [f"unknown {name}" for name in tensors if name not in expected]
    problems += [
        f"{name} is {tuple(tensors[name].shape)}, the architecture wants {tuple(expected[name].shape)}"
        for name in expected
        if name in tensors and tensors[name].shape != expected[name].shape
    ]
    if problems:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise ValueError(f"{origin} does not fit the encoder: {shown}")
    module.load_state_dict(tensors)
