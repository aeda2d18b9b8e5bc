"""Thin wrappers around torch.distributed: which rows this process owns, gather, sum, broadcast.

Under `torchrun` every process holds a contiguous share of the rows. Without it there is one process, and nothing here
imports or does anything.
"""

import atexit
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from polygrain.compute.errors import first_line

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

PATIENCE = timedelta(minutes=30)
"""The longest wait of a process for another."""

Item = TypeVar("Item")
is_alone = False


def rank() -> int:
    return 0 if is_alone else int(os.environ.get("RANK", "0"))


def count() -> int:
    return 1 if is_alone else int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def alone() -> Iterator[None]:
    """Within, each process works as if it were the only one: it holds all rows."""
    global is_alone
    before, is_alone = is_alone, True
    try:
        yield
    finally:
        is_alone = before


def share(n: int, of: int | None = None) -> slice:
    """The part of n rows that this process owns, or process `of`."""
    number = rank() if of is None else of
    return slice(n * number // count(), n * (number + 1) // count())


def require(n: int, what: str) -> None:
    """ValueError where there are fewer rows than processes."""
    if n < count():
        raise ValueError(f"{n} {what} for {count()} processes; each needs one at least: start {max(n, 1)} at most")


def call(function: str, *arguments: object) -> None:
    """A function of torch.distributed among all processes; ConnectionError where one of them is lost."""
    try:
        getattr(group(), function)(*arguments)
    except RuntimeError as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which says what to do
            raise
        raise ConnectionError(
            f"one of {count()} processes was lost ({first_line(error)}); start again: finished epochs are kept"
        ) from error


def group() -> ModuleType:
    """torch.distributed, after this process has joined the group: nccl on GPUs, gloo on CPUs."""
    import torch
    import torch.distributed as dist

    from polygrain.compute import device

    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(device.best())
        dist.init_process_group(timeout=PATIENCE)
        atexit.register(dist.destroy_process_group)
    return dist


def wait() -> None:
    """Returns when all processes have come here."""
    if count() > 1:
        call("barrier")


def gather(part: "Tensor") -> "Tensor":
    """The parts of all processes, one behind the other, in all; they may differ in length."""
    if count() == 1:
        return part
    import torch

    lengths = [torch.zeros(1, dtype=torch.int64, device=part.device) for _ in range(count())]
    call("all_gather", lengths, torch.tensor([len(part)], device=part.device))
    padded = part.new_zeros((max(map(int, lengths)), *part.shape[1:]))
    padded[: len(part)] = part
    parts = [torch.empty_like(padded) for _ in lengths]
    call("all_gather", parts, padded)
    return torch.cat([whole[: int(length)] for whole, length in zip(parts, lengths, strict=True)])


def gather_array(part: "np.ndarray") -> "np.ndarray":
    """`gather` for arrays."""
    if count() == 1:
        return part
    import torch

    return gather(torch.from_numpy(part)).numpy()


def gather_bytes(data: bytes) -> list[bytes]:
    """The bytes of each process, in all."""
    if count() == 1:
        return [data]
    import numpy as np

    ends = np.cumsum(gather_array(np.array([len(data)]))).tolist()
    everyones = gather_array(np.frombuffer(bytearray(data), np.uint8)).tobytes()
    return [everyones[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def add_up(tensors: "Sequence[Tensor]") -> None:
    """Replaces each tensor by its sum over all processes; the tensors are of one type."""
    if count() == 1 or not tensors:
        return
    import torch

    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    call("all_reduce", flat)
    for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.detach().copy_(total.view_as(tensor))


def total(n: int) -> int:
    """The sum of a number over all processes."""
    if count() == 1:
        return n
    import torch

    number = torch.tensor([n])
    add_up([number])
    return int(number)


def take(part: "Tensor", rows: "Tensor", n: int) -> "Tensor":
    """Some of n rows by their numbers, in all processes; `part` is this process's share of the rows."""
    if count() == 1:
        return part[rows]
    own = share(n)
    here = (rows >= own.start) & (rows < own.stop)
    values = part.new_zeros((len(rows), *part.shape[1:]))
    values[here] = part[rows[here] - own.start]
    add_up([values])
    return values


def from_first(data: bytes) -> bytes:
    """The first process's bytes, in all."""
    return data if count() == 1 else gather_bytes(data if rank() == 0 else b"")[0]


def round_robin(items: Sequence[Item], compute: "Callable[[Item], np.ndarray]") -> "Iterator[np.ndarray]":
    """The result of `compute` for each item, in order, at the first process; the others compute their items in turn."""
    if count() == 1:
        yield from map(compute, items)
        return
    import numpy as np

    for start in range(0, len(items), count()):
        stream = io.BytesIO()
        if start + rank() < len(items):
            np.save(stream, compute(items[start + rank()]), allow_pickle=False)
        results = gather_bytes(stream.getvalue())
        if rank() == 0:
            yield from (np.load(io.BytesIO(data), allow_pickle=False) for data in results if data)
