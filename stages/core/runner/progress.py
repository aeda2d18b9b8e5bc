"""Progress that suits its reader: a bar on a terminal, a plain line now and then in a log."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

log = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 10
Item = TypeVar("Item")


def progress(items: Iterable[Item], description: str, total: int | None = None, unit: str = "it") -> Iterator[Item]:
    """The items, while rate and time left are shown on stderr."""
    if sys.stderr.isatty():
        yield from tqdm(items, description, total, unit=unit, leave=False, dynamic_ncols=True)
        return
    if total is None and hasattr(items, "__len__"):
        total = len(items)
    start = shown = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - shown >= SECONDS_BETWEEN_LINES:
            shown, rate = now, done / (now - start)
            left = f" of {total}, {(total - done) / rate:.0f} s left" if total else ""
            log.info("%s: %d%s, %.1f %s/s", description, done, left, rate, unit)
