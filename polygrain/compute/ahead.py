"""Reading ahead: the next batch is fetched by a thread while the model works on this one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")


def ahead(items: Iterable[Item], load: Callable[[Item], Loaded], depth: int = 2) -> Iterator[tuple[Item, Loaded]]:
    """Yields every item and `load(item)`, in order; at most `depth` are loaded ahead.

    An error in `load` is raised at its item's turn.
    """
    remaining, waiting = iter(items), deque[tuple[Item, Future[Loaded]]]()
    with ThreadPoolExecutor(1, "ahead") as thread:
        waiting.extend((item, thread.submit(load, item)) for item in islice(remaining, depth))
        try:
            while waiting:
                item, loaded = waiting.popleft()
                value = loaded.result()
                waiting.extend((after, thread.submit(load, after)) for after in islice(remaining, 1))
                yield item, value
        finally:
            # A caller that stops early must not wait for items that it will not use.
            thread.shutdown(wait=True, cancel_futures=True)
