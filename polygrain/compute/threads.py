"""As many threads as torch uses, each with work of its own.

They are kept from one call to the next: a new thread would begin with fresh memory, which is slow at first.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import torch


def threads() -> ThreadPoolExecutor:
    """Threads for what is not done by torch."""
    return started(torch.get_num_threads(), os.getpid())


@contextmanager
def apart() -> Iterator[ThreadPoolExecutor]:
    """Threads in which torch may work too. Inside, it has one thread in each of them.

    Torch's own threads would compete with these for the cores.
    """
    count = torch.get_num_threads()
    pool = started_apart(count, os.getpid())
    torch.set_num_threads(1)
    try:
        yield pool
    finally:
        torch.set_num_threads(count)


@cache
def started(count: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count)


@cache
def started_apart(count: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
