"""Named tensors as safetensors files."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polygrain.store.reading import reading, remedy_for


def write_tensors(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Writes tensors, on the CPU and contiguous, as safetensors wants them."""
    file.touch()
    mode = file.stat().st_mode
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file)
    file.chmod(mode)  # safetensors leaves a file that its owner alone may read


def write_weights(module: nn.Module, file: Path) -> None:
    """Writes the module's state, each tensor in its own type."""
    write_tensors(module.state_dict(), file)


def read_tensors(file: Path, remedy: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU; ValueError with the remedy if it is missing, damaged or not finite."""
    with reading(file, remedy or remedy_for(file.parent)):
        tensors = load_file(file)
        require_finite(tensors)
    return tensors


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    """ValueError names the first tensor that holds NaN or infinity, and counts these values."""
    for name, tensor in tensors.items():
        wrong = int((~torch.isfinite(tensor)).sum()) if tensor.is_floating_point() else 0
        if wrong:
            raise ValueError(f"{wrong:,} of {tensor.numel():,} values of {name} are NaN or infinite")
