"""Named tensors as safetensors files: the weights of modules."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stages.core.store.reading import reading, remedy_for


def settled(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as a file can hold them: on the CPU, contiguous, without gradients."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def write_weights(module: nn.Module, file: Path) -> None:
    """All that the module keeps, in the types it is held in."""
    save_file(settled(module.state_dict()), file)


def read_tensors(file: Path, remedy: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU; ValueError with the remedy where it is missing or damaged."""
    with reading(file, remedy or remedy_for(file.parent)):
        return load_file(file)
