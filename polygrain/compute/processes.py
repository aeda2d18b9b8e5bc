"""Several processes that compute one result: who takes which rows, and how all come to hold what each has found.

Under `torchrun`, on one machine or several, every process holds a contiguous share of the rows. Gathered in order, or
added in turn, the parts give the bytes that one process gives. Without `torchrun` there is one process, and nothing
here imports or does anything. No process waits for another longer than POLYGRAIN_PATIENCE seconds; whoever does not
come, or is lost, is named.
"""

import atexit
import io
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch.distributed
    from torch import Tensor

PATIENCE = "POLYGRAIN_PATIENCE"
LAST_WORDS = 10.0
"""Seconds in which processes that outlive one find each other, to tell who is gone."""

Item = TypeVar("Item")
is_alone = False
store: "torch.distributed.Store | None" = None
"""Where processes leave words for each other; it lives on the first machine."""


def rank() -> int:
    return 0 if is_alone else int(os.environ.get("RANK", "0"))


def count() -> int:
    return 1 if is_alone else int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def alone() -> Iterator[None]:
    """Within, each process is the only one there is: it holds all rows, and all do the same work."""
    global is_alone
    before, is_alone = is_alone, True
    try:
        yield
    finally:
        is_alone = before


def share(n: int, of: int | None = None) -> slice:
    """The part of n rows that this process takes, or another one."""
    number = rank() if of is None else of
    return slice(n * number // count(), n * (number + 1) // count())


def require(n: int, what: str) -> None:
    """ValueError where there are fewer rows than processes: one that holds none has nothing to add to a sum."""
    if n < count():
        raise ValueError(f"{n} {what} for {count()} processes; each needs one at least: start {max(n, 1)} at most")


def patience() -> float:
    """Seconds that processes wait for each other; ValueError where the environment holds no such number."""
    text = os.environ.get(PATIENCE, "1800")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**6:
        raise ValueError(f"{PATIENCE} is {text!r}; allowed are whole seconds, 1 to 1000000")
    return float(text)


def join() -> None:
    """Joins the group that `torchrun` describes, once: nccl on GPUs, gloo on CPUs.

    TimeoutError names who is missing.
    """
    global store
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    wait = timedelta(seconds=patience())
    store, _, _ = next(dist.rendezvous("env://", timeout=wait))
    if absent := missing("here", wait.total_seconds()):
        raise TimeoutError(
            f"{named(absent)} of {count()} did not come within {wait.total_seconds():.0f} s: look there for an earlier "
            f"error, or give them more time ({PATIENCE})"
        )
    dist.init_process_group(store=store, rank=rank(), world_size=count(), timeout=wait)
    atexit.register(dist.destroy_process_group)


def missing(moment: str, seconds: float) -> list[int]:
    """The processes that do not come to this moment in time."""
    import torch.distributed as dist

    keys = [f"{moment}/{number}" for number in range(count())]
    store.set(keys[rank()], socket.gethostname())
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except dist.DistStoreError:
        return [number for number, key in enumerate(keys) if not store.check([key])]
    return []


def named(numbers: Sequence[int]) -> str:
    """`rank 1 (on node-a)`, `ranks 2 (on node-b), 3`: with the machine, where it is known."""
    known = [f"here/{number}" for number in numbers]
    places = [f" (on {store.get(key).decode()})" if store.check([key]) else "" for key in known]
    return f"rank{'s' * (len(numbers) > 1)} " + ", ".join(map("{}{}".format, numbers, places))


@contextmanager
def together() -> Iterator[ModuleType]:
    """torch.distributed for an exchange among all; ConnectionError says which process was lost in it."""
    import torch.distributed as dist

    join()
    try:
        yield dist
    except RuntimeError as error:
        # The libraries' own words begin with a place in their sources, and go on with advice.
        said = re.sub(r"^\[\S+:\d+\] ", "", str(error)).split("\n")[0].split(". ")[0]
        raise ConnectionError(f"{epitaph()} ({said}); start again: what was finished is kept") from error


def epitaph() -> str:
    """Who was lost, as far as those who are left can tell."""
    try:
        if absent := missing("left", LAST_WORDS):
            return f"{named(absent)} of {count()} was lost, or is busy elsewhere"
        return f"an exchange among {count()} processes failed"
    except RuntimeError:
        return "the machine of rank 0 was lost"


def told(name: str, words: str) -> list[str]:
    """What each process says under this name, in order; for short words, said once."""
    if count() == 1:
        return [words]
    with together():
        store.set(f"{name}/{rank()}", words)
        keys = [f"{name}/{number}" for number in range(count())]
        return [store.get(key).decode() for key in keys]


def wait() -> None:
    """Returns when all processes have come here."""
    if count() > 1:
        with together() as dist:
            dist.barrier()


def gather(part: "Tensor") -> "Tensor":
    """The parts of all processes, one behind the other; they may differ in length."""
    if count() == 1:
        return part
    import torch

    lengths = [torch.zeros(1, dtype=torch.int64, device=part.device) for _ in range(count())]
    with together() as dist:
        dist.all_gather(lengths, torch.tensor([len(part)], device=part.device))
    padded = part.new_zeros((max(map(int, lengths)), *part.shape[1:]))
    padded[: len(part)] = part
    parts = [torch.empty_like(padded) for _ in lengths]
    with together() as dist:
        dist.all_gather(parts, padded)
    return torch.cat([whole[: int(length)] for whole, length in zip(parts, lengths, strict=True)])


def gather_array(part: "np.ndarray") -> "np.ndarray":
    """`gather` for arrays."""
    if count() == 1:
        return part
    import torch

    return gather(torch.from_numpy(part)).numpy()


def each_part(part: "np.ndarray") -> "Iterator[np.ndarray]":
    """The parts of all processes one after another, in all; they may differ in length."""
    if count() == 1:
        yield part
        return
    import numpy as np
    import torch

    for source, length in enumerate(gather_array(np.array([len(part)])).tolist()):
        block = part.copy() if source == rank() else np.empty((length, *part.shape[1:]), part.dtype)
        yield from_rank(torch.from_numpy(block), source).numpy()


def gather_at(part: "np.ndarray", target: int) -> "list[np.ndarray]":
    """The parts of all processes, which are of one shape and type, at one of them; the others get none."""
    if count() == 1:
        return [part]
    import torch

    mine = torch.from_numpy(part)
    parts = [torch.empty_like(mine) for _ in range(count())] if rank() == target else None
    with together() as dist:
        dist.gather(mine, parts, target)
    return [other.numpy() for other in parts or []]


def add_up(tensors: "Sequence[Tensor]") -> None:
    """Replaces each tensor by its sum over all processes; all tensors travel in one message, and are of one type."""
    if count() == 1 or not tensors:
        return
    import torch

    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    with together() as dist:
        dist.all_reduce(flat)
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
    """Some of n rows by their numbers, in all processes, each from the one whose `part` holds its share of the rows."""
    if count() == 1:
        return part[rows]
    import torch

    mine, order = share(n), torch.argsort(rows, stable=True)
    wanted = rows[order]
    found = gather(part[wanted[(wanted >= mine.start) & (wanted < mine.stop)] - mine.start])
    return torch.empty_like(found).index_copy_(0, order, found)


def in_turn(state: "Tensor", go_on: "Callable[[Tensor], None]") -> None:
    """`go_on` changes the state in place by this process's rows, after all processes before have done so by theirs.

    So a sum over all rows is rounded as one process rounds it. The last process then has the result: `from_last`. Each
    hands a state on before it takes the next, so that with several states all processes work at once.
    """
    if count() == 1:
        go_on(state)
        return
    if rank() > 0:
        with together() as dist:
            dist.recv(state, rank() - 1)
    go_on(state)
    if rank() < count() - 1:
        with together() as dist:
            dist.send(state, rank() + 1)


def from_last(state: "Tensor") -> "Tensor":
    """The last process's tensor, in all; the others give one of its shape."""
    return from_rank(state, count() - 1)


def from_rank(state: "Tensor", source: int) -> "Tensor":
    """The tensor of one process, in all; the others give one of its shape, which it replaces."""
    if count() > 1:
        with together() as dist:
            dist.broadcast(state, source)
    return state


def from_first(data: bytes) -> bytes:
    """The first process's bytes, in all."""
    if count() == 1:
        return data
    import torch

    length = torch.tensor([len(data)])
    with together() as dist:
        dist.broadcast(length, 0)
    state = torch.empty(int(length), dtype=torch.uint8)
    if rank() == 0:
        state.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    with together() as dist:
        dist.broadcast(state, 0)
    return state.numpy().tobytes()


def dealt(items: Sequence[Item], compute: "Callable[[Item], np.ndarray]") -> "Iterator[np.ndarray]":
    """What `compute` makes of each item, in their order, at the first process; the others compute and yield nothing.

    Items are dealt out in turn, so the first process holds two results at most.
    """
    for start in range(0, len(items), count()):
        mine = start + rank()
        found = compute(items[mine]) if mine < len(items) else None
        if rank() == 0:
            yield found
        for other in range(1, min(count(), len(items) - start)):
            if rank() == other:
                send(found)
            elif rank() == 0:
                yield received(other)


def send(array: "np.ndarray") -> None:
    """Sends an array to the first process, which need not know its shape and type."""
    import numpy as np
    import torch

    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    data = torch.frombuffer(stream.getbuffer(), dtype=torch.uint8)
    with together() as dist:
        dist.send(torch.tensor([len(data)]), 0)
        dist.send(data, 0)


def received(source: int) -> "np.ndarray":
    """What this process sends by `send`."""
    import numpy as np
    import torch

    length = torch.tensor([0])
    with together() as dist:
        dist.recv(length, source)
        data = torch.empty(int(length), dtype=torch.uint8)
        dist.recv(data, source)
    return np.load(io.BytesIO(data.numpy()), allow_pickle=False)
