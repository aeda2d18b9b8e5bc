"""Where and in which precision a model runs."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Literal, get_args

import numpy as np
import torch
from pydantic import Field

Precision = Annotated[
    Literal["auto", "bfloat16", "float32"],
    Field(description="of matrix products; auto: bfloat16 where the hardware has it, else float32"),
]


def batch_at(side: int, usual: int) -> int:
    """A batch with at most as many pixels as the usual one at 224 px, but at least 8 images."""
    batch = usual
    while batch > 8 and batch * side**2 > usual * 224**2:
        batch //= 2
    return batch


def inference(side: int) -> tuple[int, Precision]:
    """Images of this side per forward pass, and the precision, where nothing trains.

    They are the machine's: POLYGRAIN_BATCH in place of 128 images of 224 px, POLYGRAIN_PRECISION in place of float32.
    """
    batch, precision = os.environ.get("POLYGRAIN_BATCH", ""), os.environ.get("POLYGRAIN_PRECISION", "float32")
    if precision not in (known := get_args(get_args(Precision)[0])):
        raise ValueError(f"POLYGRAIN_PRECISION is {precision!r}; known: {', '.join(known)}")
    if batch and not (batch.isdecimal() and int(batch)):
        raise ValueError(f"POLYGRAIN_BATCH is {batch!r}: give 1 or more")
    return int(batch or batch_at(side, 128)), precision


def best() -> torch.device:
    """CUDA where there is one, else the CPU; under `torchrun` each process has a GPU of its own."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if "LOCAL_RANK" in os.environ else torch.device("cuda")


def has_bfloat16(device: torch.device) -> bool:
    """Whether matrix products in bfloat16 are native here; elsewhere they are emulated and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def staged(rows: np.ndarray, device: torch.device) -> torch.Tensor:
    """The rows as a CPU tensor that can be copied to the device while it computes."""
    tensor = torch.from_numpy(rows)
    return tensor.pin_memory() if device.type == "cuda" else tensor


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[None]:
    """Matrix products in bfloat16 or float32; `auto` takes bfloat16 where the hardware has it."""
    enabled = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def uncast(device: torch.device) -> AbstractContextManager[None]:
    """Matrix products in the type of their inputs, also within `autocast`, where bfloat16 would be too coarse."""
    available = torch.amp.is_autocast_available(device.type)  # not for `meta`, where a model is built without values
    return torch.autocast(device.type, enabled=False) if available else nullcontext()
