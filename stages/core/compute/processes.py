"""Several processes that compute one result: who takes which part, and how all come to hold the whole.

Under `torchrun` every process holds the same inputs and computes a contiguous part. Gathered in order, the parts give
the bytes that one process gives. Without `torchrun` there is one process, and nothing here imports or does anything.
"""

import atexit
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def share(n: int) -> slice:
    """The part of n rows that this process takes."""
    return slice(n * rank() // count(), n * (rank() + 1) // count())


def join() -> None:
    """Joins the group that `torchrun` describes, once: nccl on GPUs, gloo on CPUs."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group()
        atexit.register(dist.destroy_process_group)


def wait() -> None:
    """Returns when all processes have come here."""
    if count() > 1:
        import torch.distributed as dist

        join()
        dist.barrier()


def gather(part: "Tensor") -> "Tensor":
    """The parts of all processes, one behind the other; they may differ in length."""
    if count() == 1:
        return part
    import torch
    import torch.distributed as dist

    join()
    lengths = [torch.zeros(1, dtype=torch.int64, device=part.device) for _ in range(count())]
    dist.all_gather(lengths, torch.tensor([len(part)], device=part.device))
    padded = part.new_zeros((max(map(int, lengths)), *part.shape[1:]))
    padded[: len(part)] = part
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    return torch.cat([whole[: int(length)] for whole, length in zip(parts, lengths, strict=True)])


def gather_array(part: "np.ndarray") -> "np.ndarray":
    """`gather` for arrays."""
    if count() == 1:
        return part
    import torch

    return gather(torch.from_numpy(part)).numpy()


def add_up(tensors: "Sequence[Tensor]") -> None:
    """Replaces each tensor by its sum over all processes; all tensors travel in one message, and are of one type."""
    if count() == 1 or not tensors:
        return
    import torch
    import torch.distributed as dist

    join()
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.detach().copy_(total.view_as(tensor))
