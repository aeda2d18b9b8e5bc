"""The device and the precision of a model."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Annotated, Literal, cast, get_args

import numpy as np
import torch
from pydantic import Field

Precision = Annotated[
    Literal["auto", "bfloat16", "tf32", "float32"],
    Field(
        description="of products and convolutions; auto: bfloat16 where the hardware has it, else float32; tf32: on a "
        "GPU float32 with a mantissa of 10 bits"
    ),
]


# Pixels of a pass on a CPU. Most networks' maps then stay below the 32 MiB from which on malloc gives memory back to
# the system, and asks for it again page by page: EfficientNet-Lite0 at 144 px takes 9.3 ms an image by 16, 16.5 by 128.
PIXELS = 16 * 144**2


def batch_at(side: int, usual: int, pixels: int | None = None) -> int:
    """A batch of at most `pixels` pixels, or as many as the usual batch has at 224 px, but at least 8 images."""
    batch = usual
    while batch > 8 and batch * side**2 > (pixels or usual * 224**2):
        batch //= 2
    return batch


def inference(side: int) -> tuple[int, Precision]:
    """Images of this side per forward pass, and the precision, where nothing trains.

    They are the machine's: POLYGRAIN_BATCH in place of 16 images of 144 px, POLYGRAIN_PRECISION in place of float32; on
    a GPU in place of 512 of 224 px and tf32.
    """
    usual, pixels, kind = (512, None, "tf32") if torch.cuda.is_available() else (128, PIXELS, "float32")
    batch, precision = os.environ.get("POLYGRAIN_BATCH", ""), os.environ.get("POLYGRAIN_PRECISION", kind)
    if precision not in (known := get_args(get_args(Precision)[0])):
        raise ValueError(f"POLYGRAIN_PRECISION is {precision!r}; known: {', '.join(known)}")
    if batch and not (batch.isdecimal() and int(batch)):
        raise ValueError(f"POLYGRAIN_BATCH is {batch!r}: give 1 or more")
    return int(batch or batch_at(side, usual, pixels)), cast(Precision, precision)


def best() -> torch.device:
    """CUDA where there is one, else the CPU; under `torchrun` each process has a GPU of its own.

    On a GPU float32 is not cut to TF32 from here on, unless `autocast` names that, and POLYGRAIN_DETERMINISTIC=1 has
    torch take kernels that give the same bytes twice. ValueError for more processes than GPUs.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    allow_tf32(False)
    if os.environ.get("POLYGRAIN_DETERMINISTIC") == "1":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
        torch.use_deterministic_algorithms(True, warn_only=True)
    if "LOCAL_RANK" not in os.environ:
        return torch.device("cuda")
    processes, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if processes > gpus:
        raise ValueError(
            f"{processes} processes of a stage on a machine that shows it {gpus} GPUs, and each needs its own: set "
            f"POLYGRAIN_PROCESSES (or --nproc-per-node) to {gpus} at most"
        )
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def keep_memory() -> None:
    """Has glibc keep freed memory for the next training step; other C libraries stay as they are.

    Else every array of 32 MiB and more goes back to the system, and the next one is zeroed again page by page.
    """
    with suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-4, 0)  # M_MMAP_MAX
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def sent(values: torch.Tensor, where: torch.device) -> torch.Tensor:
    """A copy of a CPU tensor on the device; the call does not wait for pending work of the device."""
    return (values.pin_memory() if where.type == "cuda" else values).to(where, non_blocking=True)


def for_convolutions(images: torch.Tensor) -> torch.Tensor:
    """The images in the order of values in which a GPU convolves fastest: a pixel's channels side by side."""
    return images.contiguous(memory_format=torch.channels_last) if images.is_cuda else images


def roomy(values: int, where: torch.device, times: int) -> int:
    """The number of values to work on at once: few on a CPU, for its caches; more on a GPU, for long kernels."""
    return values * (times if where.type == "cuda" else 1)


def has_bfloat16(device: torch.device) -> bool:
    """Whether matrix products in bfloat16 are native here; elsewhere they are emulated and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def staged(rows: np.ndarray, device: torch.device) -> torch.Tensor:
    """The rows as a CPU tensor that can be copied to the device while it computes."""
    tensor = torch.from_numpy(rows)
    return tensor.pin_memory() if device.type == "cuda" else tensor


@contextmanager
def autocast(device: torch.device, precision: Precision) -> Iterator[None]:
    """Products in bfloat16 or float32, on a GPU in TF32 where that is named; `auto` takes bfloat16 where it is native.

    TF32 outlasts the block where gradients are computed: their products follow.
    """
    if device.type == "cuda":
        allow_tf32(precision == "tf32")
    enabled = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    with torch.autocast(device.type, torch.bfloat16, enabled=enabled):
        yield
    if device.type == "cuda" and not torch.is_grad_enabled():
        allow_tf32(False)


def allow_tf32(allowed: bool) -> None:
    """Whether a GPU may cut float32 to TF32; torch itself does so in convolutions, where nobody asked."""
    # The older of torch's two ways: both agree after it, after the newer one the older raises.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    if not allowed:
        torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]  # else it is whatever all backends have


@contextmanager
def exact() -> Iterator[None]:
    """Products of float32 in float32, whatever this process allows elsewhere."""
    kinds, usual = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul), None  # type: ignore[attr-defined]
    before = [kind.fp32_precision for kind in kinds]
    with suppress(RuntimeError):  # where it was set by torch's newer way alone
        usual = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if usual:
            torch.set_float32_matmul_precision(usual)
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision


@contextmanager
def uncast(device: torch.device) -> Iterator[None]:
    """Products in the type of their inputs, also within `autocast`, where bfloat16 or TF32 would be too coarse."""
    available = torch.amp.is_autocast_available(device.type)  # not for `meta`, where a model is built without values
    plain = torch.autocast(device.type, enabled=False) if available else nullcontext()
    with plain, exact() if device.type == "cuda" else nullcontext():
        yield
