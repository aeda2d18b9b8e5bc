"""Progress that suits its reader: a bar on a terminal, a plain line now and then in a log.

Both say how far the stage is, the rate, the time that is left of all rounds, and what was measured last. The lines are
also what the pages of a run are drawn from (pipeline/progress.py), wherever the stage runs:

    adaptor@size2, epoch 3/7: 120 of 400, 4 min left, 12.3 batch/s, loss 0.5012, accuracy 0.8125
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import TypeVar

from tqdm import tqdm

from polygrain.runner import gpu

log = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 10
SECONDS_BETWEEN_VALUES = 1
"""On a bar: to read a number makes the accelerator wait."""
Item = TypeVar("Item")
Measure = Callable[[int], Mapping[str, int | float]]
"""From the number of items done in a round to named numbers."""


def nothing(done: int) -> dict[str, float]:
    return {}


def progress(
    items: Iterable[Item], description: str, total: int | None = None, unit: str = "it", measure: Measure = nothing
) -> Iterator[Item]:
    """The items, while rate, time left and what `measure` returns are shown on stderr."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    return Rounds(description, total, unit).over(items, 0, measure)


class Rounds:
    """So many rounds over `count` items each, epochs for example; the first `before` of them an earlier process did.

    Without `rounds` there is one, which has no number; without `count` the time left is not known.
    """

    def __init__(self, name: str, count: int | None, unit: str, rounds: int | None = None, before: int = 0) -> None:
        stage = os.environ.get("DVC_STAGE", "").rpartition(":")[2]
        self._name = f"{stage}, {name}" if stage else name
        self._count, self._unit, self._rounds, self._before = count, unit, rounds, before
        self._start = time.monotonic()
        self._rate = 0.0

    def over(self, items: Iterable[Item], number: int, measure: Measure = nothing) -> Iterator[Item]:
        """The items of round `number`, from 0."""
        if sys.stderr.isatty():
            yield from self._with_bar(items, number, measure)
            return
        start = shown = time.monotonic()
        for done, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            self._rate = done / max(now - start, 1e-9)
            if now - shown >= SECONDS_BETWEEN_LINES:
                shown = now
                log.info("%s", self.line(number, done, {**measure(done), **gpu.use()}))

    def _with_bar(self, items: Iterable[Item], number: int, measure: Measure) -> Iterator[Item]:
        """The same with a bar over all rounds, which is gone between them: lines are logged there."""
        total = self._count and self._count * (self._rounds or 1)
        # No smoothing: between two rounds, too, time passes.
        looks = {"unit": self._unit, "leave": False, "dynamic_ncols": True, "smoothing": 0}
        count, shown = self._count or 0, 0.0
        with tqdm(total=total, initial=count * number, desc=self._title(number), **looks) as bar:
            # Rate and time left are of all that this process did.
            bar.initial = count * self._before
            bar.start_t -= time.monotonic() - self._start
            start = time.monotonic()
            for done, item in enumerate(items, 1):
                yield item
                bar.update()
                now = time.monotonic()
                self._rate = done / max(now - start, 1e-9)
                if now - shown >= SECONDS_BETWEEN_VALUES:
                    shown = now
                    bar.set_postfix_str(", ".join(spoken({**measure(done), **gpu.use()})), refresh=False)

    def line(self, number: int, done: int | None = None, values: Mapping[str, int | float] | None = None) -> str:
        """The line after `done` items of round `number`, or after all of them."""
        done = self._count if done is None else done
        parts = [f"{done} of {self._count}" if self._count else f"{done}"] if done is not None else []
        passed = number + (done / self._count if self._count and done is not None else 1) - self._before
        if self._count and passed > 0:
            seconds = (time.monotonic() - self._start) / passed
            parts.append(f"{duration(seconds * max((self._rounds or 1) - self._before - passed, 0))} left")
        parts += [f"{self._rate:.{1 if self._rate >= 1 else 3}f} {self._unit}/s"] if self._rate else []
        return f"{self._title(number)}: {', '.join(parts + spoken(values or {}))}"

    def _title(self, number: int) -> str:
        return f"{self._name} {number + 1}/{self._rounds}" if self._rounds else self._name


def spoken(values: Mapping[str, int | float]) -> list[str]:
    return [f"{name} {value:.4g}" for name, value in values.items()]


def duration(seconds: float) -> str:
    """Seconds as people say them: 45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
