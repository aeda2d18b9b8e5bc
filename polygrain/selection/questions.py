"""How well a candidate would answer new pictures that search a collection, as far as teachers can tell.

Some training images ask, the others are searched. The teachers' own answers come from their smoothed collection: there
an embedding retrieves best. A candidate answers from its plain collection, its smoothed one, or both. Its score is the
share of the teachers' nearest that are among its own, the mean over these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Int

from polygrain.retrieval.neighbours import nearest
from polygrain.retrieval.smoothing import Smoothing, mixed_with_nearest, smooth_by
from polygrain.retrieval.smoothing_choice import SHARE, SmoothingSettings, choose

Searched = Literal["plain", "smoothed"]
Answers = dict[str, Int[np.ndarray, "image rank"]]


@dataclass(frozen=True)
class Questions:
    """The tasks of all rows, of which the first `asked` ask; what is expected, and how each task is smoothed."""

    tasks: np.ndarray
    asked: int
    smoothings: Mapping[str, Smoothing]
    expected: Answers
    searched: Sequence[Searched] = ("plain", "smoothed")

    def judge(
        self, vectors: Float32[np.ndarray, "row dim"]
    ) -> tuple[Float[np.ndarray, " asked"], Float[np.ndarray, " asked"]]:
        """The score of each row that asks, in 0..1, and what the last of `searched` gives alone."""
        shares = np.zeros((len(self.searched), self.asked))
        for row, how in zip(shares, self.searched, strict=True):
            for task, ranks in self.expected.items():
                smoothing = self.smoothings[task] if how == "smoothed" else None
                given = answers(vectors, self.tasks, self.asked, task, smoothing, ranks.shape[1])
                same = [np.isin(one, other).mean() for one, other in zip(given, ranks, strict=True)]
                row[self.tasks[: self.asked] == task] = same
        return shares.mean(0), shares[-1]


def answers(
    vectors: Float32[np.ndarray, "row dim"],
    tasks: np.ndarray,
    asked: int,
    task: str,
    smoothing: Smoothing | None,
    depth: int,
) -> Int[np.ndarray, "image rank"]:
    """The nearest rows of a task's collection, plain or smoothed, for each of its rows that ask."""
    queries, rows = (part[own == task] for part, own in zip(split(vectors, asked), split(tasks, asked), strict=True))
    if smoothing is not None and smoothing.strength:
        neighbours = nearest(rows, rows, min(smoothing.neighbours, len(rows) - 1), exclude_self=True)[1]
        rows = smooth_by(rows, neighbours, smoothing)
        queries = mixed_with_nearest(queries, rows, smoothing)
    return nearest(queries, rows, depth)[1]


def split(rows: np.ndarray, asked: int) -> tuple[np.ndarray, np.ndarray]:
    return rows[:asked], rows[asked:]


def ask(
    targets: Float32[np.ndarray, "row dim"],
    tasks: np.ndarray,
    asked: int,
    settings: SmoothingSettings,
    seed: int,
    searched: Sequence[Searched] = ("plain", "smoothed"),
) -> Questions:
    """What the teachers answer, by their targets; the smoothing of each task is chosen by them, without labels.

    A task without five rows to search asks nothing.
    """
    smoothings, expected = {}, {}
    for task in dict.fromkeys(tasks[:asked]):
        rows = targets[asked:][tasks[asked:] == task]
        if depth := min(settings.depth, len(rows) // SHARE):
            smoothings[task] = choose(rows, settings, seed).smoothing
            expected[task] = answers(targets, tasks, asked, task, smoothings[task], depth)
    return Questions(tasks, asked, smoothings, expected, searched)
