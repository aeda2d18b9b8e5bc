"""Rows that no process holds alone: each has a part of them, and all can look at any of them together."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch

from polygrain.compute import processes
from polygrain.compute.blocks import Rows


class Distributed:
    """Rows `n ...`, the parts of all processes one behind the other; parts may differ in length, or be empty.

    `rows[which]` is an exchange: all processes ask for the same rows, by a slice or by their numbers, and all get them,
    in an array of their own.
    """

    def __init__(self, part: np.ndarray, lengths: Sequence[int] | None = None) -> None:
        """`lengths` of all parts, where they are known."""
        if lengths is None:
            lengths = processes.gather_array(np.array([len(part)])).tolist()
        self.part, self.edges = part, np.cumsum([0, *lengths]).tolist()
        self.shape = (self.edges[-1], *part.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def own(self) -> slice:
        """The rows that this process holds."""
        return slice(*self.edges[processes.rank() : processes.rank() + 2])

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        numbers = np.arange(*which.indices(len(self))) if isinstance(which, slice) else which
        order = np.argsort(numbers, kind="stable")
        wanted = numbers[order]
        found = np.empty((len(wanted), *self.shape[1:]), self.part.dtype)
        # In their order, the rows of one owner follow each other: each sends its own, and nothing is held twice.
        for owner, (first, last) in enumerate(pairwise(np.searchsorted(wanted, self.edges))):
            if first == last:
                continue
            block = found[first:last]
            if owner == processes.rank():
                np.take(self.part, wanted[first:last] - self.own.start, 0, out=block, mode="clip")
            processes.from_rank(torch.from_numpy(block), owner)
        if (wanted == numbers).all():
            return found
        out = np.empty_like(found)
        out[order] = found
        return out

    def between(self, rows: slice) -> "Distributed":
        """Some rows that follow each other, where they are."""
        start, stop, _ = rows.indices(len(self))
        edges = np.clip(self.edges, start, max(start, stop))
        first, last = (int(edge) - self.own.start for edge in edges[processes.rank() : processes.rank() + 2])
        return Distributed(self.part[first:last], np.diff(edges).tolist())


class Held:
    """What this process holds of distributed rows, by their numbers among all; no exchange."""

    def __init__(self, rows: Distributed) -> None:
        self.rows, self.shape = rows, rows.shape

    def __getitem__(self, part: slice) -> np.ndarray:
        first = self.rows.own.start
        return self.rows.part[part.start - first : part.stop - first]


def share_of(rows: Rows) -> tuple[slice, Rows]:
    """The rows that this process works on, and where it may read them alone."""
    if isinstance(rows, Distributed):
        return rows.own, Held(rows)
    return processes.share(rows.shape[0]), rows


def dealt_blocks(rows: Rows, parts: list[slice], compute: Callable[[np.ndarray], np.ndarray]) -> Iterator[np.ndarray]:
    """`processes.dealt` for blocks of rows: what `compute` makes of each, in their order, at the first process."""
    if not isinstance(rows, Distributed):
        yield from processes.dealt(parts, lambda part: compute(rows[part]))
        return
    for start in range(0, len(parts), processes.count()):
        turn, mine = parts[start : start + processes.count()], None
        for number, part in enumerate(turn):
            block = rows[part]
            mine = block if number == processes.rank() else mine
        yield from processes.dealt(turn, lambda _, block=mine: compute(block))


def turns(mine: slice, n: int, rows: int) -> Iterator[slice]:
    """This process's part of n rows in turns, as many in all processes: of all together about `rows` rows a turn."""
    count, length = -(-n // rows), mine.stop - mine.start
    edges = [mine.start + length * i // count for i in range(count + 1)]
    return (slice(*pair) for pair in pairwise(edges))
