"""Named tensors as safetensors files, each with the checksum of all its tensors in the file's metadata."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from polygrain.store.reading import reading, remedy_for

CHECKSUM = "sha256"


def settled(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as a file can hold them: on the CPU, contiguous, without gradients."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """The SHA-256 of what else the metadata says, and of the names, types, shapes and values of settled tensors."""
    said = sorted((key, value) for key, value in metadata.items() if key != CHECKSUM)
    total = hashlib.sha256(json.dumps(said).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def write_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a file that says in its metadata what it must hold; OSError where the disk does not take it."""
    kept, said = settled(tensors), dict(metadata or {})
    try:
        save_file(kept, file, metadata=said | {CHECKSUM: checksum(kept, said)})
    except SafetensorError as error:
        # What the system said is only in the text.
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code) if number else str(error), str(file)) from error


def write_weights(module: nn.Module, file: Path) -> None:
    """All that the module keeps, in the types it is held in."""
    write_tensors(module.state_dict(), file)


def load(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, on the CPU, and its metadata; whoever calls says what to do where it is damaged."""
    with safe_open(file, "pt") as stream:
        metadata = stream.metadata() or {}
        tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    # A file from elsewhere has no checksum, and is taken as it is.
    if CHECKSUM in metadata and checksum(tensors, metadata) != metadata[CHECKSUM]:
        raise ValueError("its tensors do not match the checksum in its metadata")
    return tensors, metadata


def read_tensors(file: Path, remedy: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU; ValueError with the remedy where it is missing or damaged, or not finite."""
    with reading(file, remedy or remedy_for(file.parent)):
        tensors, _ = load(file)
        require_finite(tensors)
    return tensors


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    """ValueError names the first tensor that holds NaN or an infinity, with how many of its values are."""
    for name, tensor in tensors.items():
        wrong = int((~torch.isfinite(tensor)).sum()) if tensor.is_floating_point() else 0
        if wrong:
            raise ValueError(f"{wrong:,} of {tensor.numel():,} values of {name} are NaN or infinite")
