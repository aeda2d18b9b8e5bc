"""How far a stage is and what it measured, read from the lines that `polygrain/runner/progress.py` logs."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

# "epoch 3/7: 120 of 400, 4 min left, 12.3 batch/s, loss 0.5012"; "images: 500 of 1000, ..."; "epoch 3/7: loss 0.1234"
HEAD = re.compile(r"(?:(.*), )?\b(\w+) (\d+)/(\d+)$")
COUNT = re.compile(r"(\d+) of (\d+)")
RATE = re.compile(r"[\d.]+ \S+/s")
VALUE = re.compile(r"([A-Za-z_]\w*) (-?[\d.]+(?:e[+-]?\d+)?)")
MOST_POINTS = 400
"""Of a curve: beyond, every second one is dropped."""


class Point(NamedTuple):
    """A value, measured after so many rounds (epochs, a part of one counts as such) and `step` items of all rounds."""

    rounds: float
    step: int
    value: float


@dataclass
class Progress:
    """Share done, the last line that told it, and every value measured so far, as lines come in."""

    share: float = 0.0
    text: str = ""
    curves: dict[str, list[Point]] = field(default_factory=dict)
    """By name; that of what is trained, where a stage trains several one after the other, stands before it."""
    _in_rounds: bool = False

    def hear(self, line: str) -> dict[str, Point] | None:
        """Takes in a line; the values it told by name, None where it told nothing of how far the stage is."""
        title, _, rest = line.partition(": ")
        words, head = rest.split(", "), HEAD.search(title)
        count = next(filter(None, map(COUNT.fullmatch, words)), None)
        if head is None and (count is None or not any(map(RATE.fullmatch, words))):
            return None
        number, total = (int(head[3]), max(int(head[4]), 1)) if head else (1, 1)
        items = (int(count[1]), max(int(count[2]), 1)) if count else (1, 1)
        rounds = number - 1 + min(items[0] / items[1], 1.0)
        if head is None and self._in_rounds:
            # What is counted between two rounds, the looks of a validation say, is a part of them.
            return {}
        self.share, self.text = min(rounds / total, 1.0), line
        self._in_rounds = head is not None and self.share < 1
        prefix = f"{head[1] if head else title} " if head is None or head[1] else ""
        found = {}
        for name, value in (met.groups() for met in map(VALUE.fullmatch, words) if met):
            try:
                point = Point(rounds, (number - 1) * items[1] + items[0], float(value))
            except ValueError:
                continue
            found[prefix + name] = point
            self._add(prefix + name, point)
        return found

    def _add(self, name: str, point: Point) -> None:
        curve = self.curves.setdefault(name, [])
        # A stage that is tried again begins anew.
        while curve and curve[-1].rounds >= point.rounds:
            curve.pop()
        curve.append(point)
        if len(curve) > MOST_POINTS:
            del curve[1:-1:2]
