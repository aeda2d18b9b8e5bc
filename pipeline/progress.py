"""The progress of a stage, read from the lines that `polygrain/runner/progress.py` logs, and shown while it runs."""

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact

# "a@b, epoch 3/7: 120 of 400, 4 min left, 1.3 batch/s, loss 0.5"; "a, sample: 500 of 1000, ..."; "epoch 3/7: loss 0.1"
HEAD = re.compile(r"\b\w+ (\d+)/(\d+)$")
COUNT = re.compile(r"(\d+) of (\d+)")
RATE = re.compile(r"[\d.]+ \S+/s")
SECONDS_BETWEEN_UPDATES = 1  # each is a row in the server's database


class Point(NamedTuple):
    """The progress in a line: whether it counts rounds, and the share done."""

    has_rounds: bool
    share: float


def read(line: str) -> Point | None:
    """The point that a line tells; None where it is about something else."""
    title, _, rest = line.partition(": ")
    words, head = rest.split(", "), HEAD.search(title)
    count = next(filter(None, map(COUNT.fullmatch, words)), None)
    if head is None and (count is None or not any(map(RATE.fullmatch, words))):
        return None
    number, total = (int(head[1]), int(head[2])) if head else (1, 1)
    done, items = (int(count[1]), max(int(count[2]), 1)) if count else (1, 1)
    return Point(head is not None, (number - 1 + done / items) / total)


def slug(name: str) -> str:
    """The name in the characters that Prefect allows in an artifact's key."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@contextmanager
def reported(what: str) -> Iterator[None]:
    """A server that does not answer for a moment costs a warning, not hours of training."""
    try:
        yield
    except Exception as error:
        get_run_logger().warning("the server did not take or give %s: %s", what, error)


class StageProgress:
    """The progress bar of a stage among the artifacts of the run, where the stage tells how far it is."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.bar: UUID | None = None
        self.share, self.at, self.is_between = 0.0, -math.inf, False

    def add(self, line: str) -> None:
        """Shows the progress in a line of the stage."""
        point = read(line)
        if point is None or (self.is_between and not point.has_rounds):
            return  # what is counted between two rounds, a validation say, is a part of them
        self.share, self.is_between = point.share, point.has_rounds and point.share < 1
        if time.monotonic() - self.at >= SECONDS_BETWEEN_UPDATES:
            self.at = time.monotonic()
            self.show(line)

    def show(self, text: str) -> None:
        percent = round(100 * self.share, 1)
        with reported("progress"):
            if self.bar is None:
                self.bar = create_progress_artifact(percent, key=f"progress-{slug(self.stage)}", description=text)
            else:
                update_progress_artifact(self.bar, percent, description=text)

    def finish(self, result: str) -> None:
        """After the stage's end."""
        if self.bar is not None:
            self.share = 1.0 if result in ("ran", "cached") else self.share
            self.show(f"{self.stage}: {result}")
