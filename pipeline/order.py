"""Which stage may start when: after all it reads from, and no more than so many at once."""

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from graphlib import TopologicalSorter
from typing import Protocol

from pipeline.graph import Stage

SECONDS_BETWEEN_LOOKS = 3.0
"""How often the caller is asked whether to go on."""


class Future(Protocol):
    """What ends some time: Prefect's futures and those of the standard library."""

    def add_done_callback(self, fn: Callable) -> None: ...


def submit_in_order(
    stages: list[Stage],
    jobs: int,
    submit: Callable[[Stage, list[Future]], Future],
    look: Callable[[], None],
) -> dict[str, Future]:
    """Submits each stage once all it reads from has ended, at most `jobs` at once; returns a finished future for each.

    A stage whose upstream failed is submitted too: Prefect then marks it as not ready, and it runs nothing.
    `look` is called every few seconds and may raise.
    """
    by_name = {stage.name: stage for stage in stages}
    sorter = TopologicalSorter({stage.name: [name for name in stage.upstream if name in by_name] for stage in stages})
    sorter.prepare()
    looked = time.monotonic()
    finished: queue.SimpleQueue[str] = queue.SimpleQueue()
    futures: dict[str, Future] = {}
    ready: list[str] = []
    running: set[str] = set()
    while sorter.is_active():
        ready += sorter.get_ready()
        while ready and len(running) < jobs:
            name = ready.pop(0)
            futures[name] = submit(by_name[name], [futures[up] for up in by_name[name].upstream if up in futures])
            running.add(name)
            futures[name].add_done_callback(lambda future, name=name: finished.put(name))
        with suppress(queue.Empty):
            name = finished.get(timeout=SECONDS_BETWEEN_LOOKS)
            running.discard(name)
            sorter.done(name)
        if time.monotonic() - looked >= SECONDS_BETWEEN_LOOKS:
            look()
            looked = time.monotonic()
    return futures
