"""Which of several settings of a search a person means, asked in clicks.

Every setting ranks the images nearest to some queries. A question is a query with two groups of images, each found by
one of two settings only, among its nearest of some depth. A click, which group fits the query better, is a sign for
every setting: it finds more of that group, or more of the other, or as many of both.

Settings are weighed as in a multihypothesis sequential probability ratio test (Baum and Veeravalli, 1994), as if a
sign were right with the probability `RIGHT`. At first a setting weighs `FALL` times what its neighbour towards the
chosen one does, so that a few clicks change nothing. The next question splits the weight most evenly. The test ends
when one setting has `SURE` of the weight, and after `MOST` clicks at the latest.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

# The second and third were found with labels (benchmarks/clicks.py).
MOST, RIGHT, FALL, SURE = 30, 0.6, 0.7, 0.95
# Nearest among which settings may differ: which of these decide depends on how many images are alike.
DEPTHS = (2, 10, 50)
# Images of a group, at most; weight that a question has to split off, at least.
SHOWN, LEAST = 3, 0.005


class Question(NamedTuple):
    """The number of a query, two groups of rows, the depth at which settings differ, and the sign of each setting.

    A sign is 1 for a setting that finds more of the first group, -1 for more of the second.
    """

    query: int
    first: list[int]
    second: list[int]
    depth: int
    signs: Float64[np.ndarray, " setting"]


class State(NamedTuple):
    """After some clicks: the weights, the next question or None at the end, and what was asked before."""

    weights: Float64[np.ndarray, " setting"]
    question: Question | None
    asked: tuple[tuple[Question, str], ...]

    @property
    def best(self) -> int:
        return int(np.argmax(self.weights))


class Clicks:
    """The test over the rankings of some queries by each setting, without the queries themselves, nearest first."""

    def __init__(self, ranked: Int64[np.ndarray, "setting query rank"], chosen: int) -> None:
        self.ranked, self.chosen = ranked, chosen
        ranks = ranked.shape[2]
        self.depths = sorted({min(depth, max(1, ranks // 2)) for depth in DEPTHS})
        self.after = lru_cache(2 * MOST)(self.replay)

    def replay(self, votes: str) -> State:
        """The state after votes: 1 for the first group, 2 for the second, 0 where neither fits better.

        The same votes are always about the same questions. ValueError for votes beyond the end.
        """
        if not votes:
            steps = np.abs(np.arange(len(self.ranked)) - self.chosen)
            return self.state(FALL**steps, ())
        before = self.after(votes[:-1])
        if before.question is None or votes[-1] not in "012":
            raise ValueError(f"{len(votes)} votes, {votes[-1]!r} the last: give 0, 1 or 2 for each question")
        right = {"0": 0, "1": 1, "2": -1}[votes[-1]] * before.question.signs
        weights = before.weights * np.where(right > 0, RIGHT, np.where(right < 0, 1 - RIGHT, 0.5))
        return self.state(weights, (*before.asked, (before.question, votes[-1])))

    def state(self, weights: Float64[np.ndarray, " setting"], asked: tuple[tuple[Question, str], ...]) -> State:
        weights = weights / weights.sum()
        is_over = len(asked) >= MOST or weights.max() >= SURE
        return State(weights, None if is_over else self.next(weights, asked), asked)

    def next(
        self, weights: Float64[np.ndarray, " setting"], asked: tuple[tuple[Question, str], ...]
    ) -> Question | None:
        """A question about a query that was not asked for, at the depth whose questions were decided most often."""
        decided = {depth: [vote != "0" for one, vote in asked if one.depth == depth] for depth in self.depths}
        depths = sorted(self.depths, key=lambda depth: -(sum(decided[depth]) + 1) / (len(decided[depth]) + 1.5))
        used, generator = {one.query for one, _ in asked}, np.random.default_rng(len(asked))
        for query in range(self.ranked.shape[1]):
            for depth in depths if query not in used else ():
                if question := self.about(query, depth, weights, generator):
                    return question
        return None

    def about(
        self, query: int, depth: int, weights: Float64[np.ndarray, " setting"], generator: np.random.Generator
    ) -> Question | None:
        """The question about this query that splits the weight most evenly; None where none splits off `LEAST`."""
        rows = self.ranked[:, query, :depth]
        best, most = None, LEAST
        for one in range(len(rows)):
            for other in range(one):
                groups = [np.setdiff1d(rows[a], rows[b]) for a, b in ((one, other), (other, one))]
                count = min(SHOWN, *map(len, groups))
                if not count:
                    continue
                groups = [generator.permutation(group)[:count] for group in groups]
                signs = np.sign(np.subtract(*(np.isin(rows, group).sum(1) for group in groups))).astype(float)
                split = min(weights[signs > 0].sum(), weights[signs < 0].sum())
                if split > most:
                    best, most = (groups, signs), split
        if best is None:
            return None
        (first, second), signs = best
        if generator.integers(2):  # a glance does not tell which setting is which
            first, second, signs = second, first, -signs
        return Question(query, first.tolist(), second.tolist(), depth, signs)
