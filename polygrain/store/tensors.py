"""Named tensors as safetensors files."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from polygrain.store.reading import reading, remedy_for


def settled(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as a file can hold them: on the CPU, contiguous, without gradients."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def write_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors and, for checkpoints, some words beside them."""
    save_file(settled(tensors), file, metadata=dict(metadata or {}))


def write_weights(module: nn.Module, file: Path) -> None:
    """Writes the module's state, each tensor in its own type."""
    write_tensors(module.state_dict(), file)


def load(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, on the CPU, and its metadata; errors of reading pass through."""
    with safe_open(file, "pt") as stream:
        return {name: stream.get_tensor(name) for name in stream.keys()}, stream.metadata() or {}  # noqa: SIM118


def read_tensors(file: Path, remedy: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU; ValueError with the remedy if it is missing, damaged or not finite."""
    with reading(file, remedy or remedy_for(file.parent)):
        tensors, _ = load(file)
        require_finite(tensors)
    return tensors


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    """ValueError names the first tensor that holds NaN or infinity, and counts these values."""
    for name, tensor in tensors.items():
        wrong = int((~torch.isfinite(tensor)).sum()) if tensor.is_floating_point() else 0
        if wrong:
            raise ValueError(f"{wrong:,} of {tensor.numel():,} values of {name} are NaN or infinite")
