"""Whether one model is better than another by more than chance: a randomisation test over the queries of both.

If the models did not differ, each query's two scores could as well have been exchanged. So the differences get random
signs, and p is the share of draws whose mean is as far from 0 as the measured one (Fisher, 1935; Smucker et al., 2007).
Where the same queries picked the model among several, a draw counts by that of them whose mean is farthest from 0
(Westfall and Young, 1993).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from polygrain.findings.scores import MEAN

CLEAR = 0.05
DRAWS, SIGNS = 10_000, 2**28  # signs of all draws at most: with more queries there are fewer draws
BLOCK = 2**22

Queries = Mapping[str, Mapping[int, Mapping[str, Any]]]


class Paired(NamedTuple):
    """The gain in points, and the chance of one as large where the models do not differ."""

    gain: float
    p: float

    @property
    def is_clear(self) -> bool:
        return self.p < CLEAR


def compare(before: Queries, after: Queries, others: Sequence[Queries] = (), seed: int = 0) -> dict[str, Paired]:
    """R-Precision of `after` minus `before` on each task, and on their `mean`; {} where no query was asked of both.

    `others` could have been picked in the place of `after`, by the same queries.
    """
    differences = {}
    for task in before.keys() & after.keys():
        rows = sorted(before[task].keys() & after[task].keys())
        asked = [[one.get(task, {}).get(row, before[task][row]) for one in (after, *others)] for row in rows]
        if rows:
            values = np.array([[query["r_precision"] for query in queries] for queries in asked], np.float64)
            differences[task] = values - np.array([[before[task][row]["r_precision"]] for row in rows])
    if not differences:
        return {}
    names = [task for task in before if task in differences]
    draws = int(max(100, min(DRAWS, SIGNS // sum(map(len, differences.values())))))
    rng = np.random.default_rng(seed)
    drawn = np.stack([drawn_means(differences[task], draws, rng) for task in names])
    measured = np.array([differences[task][:, 0].mean() for task in names])
    result = {MEAN: paired(measured.mean(), drawn.mean(0))}
    return result | {task: paired(*both) for task, *both in zip(names, measured, drawn, strict=True)}


def drawn_means(differences: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The means of the differences `query model` with random signs, alike for all models, of each draw."""
    changed = differences[differences.any(1)]
    means = np.zeros((draws, differences.shape[1]))
    step = max(1, BLOCK // max(1, len(changed)))
    for start in range(0, draws, step):
        signs = rng.integers(0, 2, (len(means[start : start + step]), len(changed)), np.int8) * 2.0 - 1
        means[start : start + step] = signs @ changed / len(differences)
    return means


def paired(measured: float, drawn: np.ndarray) -> Paired:
    # The measured one counts as a draw, so that p is never 0; sums of the same numbers may differ in their last digit.
    extreme = int((np.abs(drawn).max(1) >= abs(measured) - 1e-12).sum())
    return Paired(100 * float(measured), (1 + extreme) / (1 + len(drawn)))
