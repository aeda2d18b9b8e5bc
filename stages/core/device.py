"""Where and in which precision a model runs."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

Precision = Literal["auto", "bfloat16", "float32"]


def best() -> torch.device:
    """CUDA where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_bfloat16(device: torch.device) -> bool:
    """Whether matrix products in bfloat16 are native here; elsewhere they are emulated and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[None]:
    """Matrix products in bfloat16 or float32; `auto` takes bfloat16 where the hardware has it."""
    enabled = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)
