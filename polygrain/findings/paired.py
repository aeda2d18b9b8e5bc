"""Whether one model is better than another by more than chance: a randomisation test over the queries of both.

If the models did not differ, each query's two scores could as well have been exchanged. So the differences get random
signs, and p is the share of draws whose mean is as far from 0 as the measured one (Fisher, 1935; Smucker et al., 2007).
"""

from collections.abc import Mapping
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


def compare(before: Queries, after: Queries, seed: int = 0) -> dict[str, Paired]:
    """R-Precision of `after` less `before` on each task, and on their `mean`; {} where no query was asked of both."""
    differences = {}
    for task in before.keys() & after.keys():
        rows = sorted(before[task].keys() & after[task].keys())
        values = [after[task][row]["r_precision"] - before[task][row]["r_precision"] for row in rows]
        if values:
            differences[task] = np.array(values, np.float64)
    if not differences:
        return {}
    names = [task for task in before if task in differences]
    draws = int(max(100, min(DRAWS, SIGNS // sum(map(len, differences.values())))))
    rng = np.random.default_rng(seed)
    drawn = np.stack([drawn_means(differences[task], draws, rng) for task in names])
    measured = np.array([differences[task].mean() for task in names])
    result = {MEAN: paired(measured.mean(), drawn.mean(0))}
    return result | {task: paired(*both) for task, *both in zip(names, measured, drawn, strict=True)}


def drawn_means(differences: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The mean of the differences with random signs, of each draw."""
    changed = differences[differences != 0]
    means = np.zeros(draws)
    step = max(1, BLOCK // max(1, len(changed)))
    for start in range(0, draws, step):
        signs = rng.integers(0, 2, (len(means[start : start + step]), len(changed)), np.int8) * 2.0 - 1
        means[start : start + step] = signs @ changed / len(differences)
    return means


def paired(measured: float, drawn: np.ndarray) -> Paired:
    # The measured one counts as a draw, so that p is never 0; sums of the same numbers may differ in their last digit.
    extreme = int((np.abs(drawn) >= abs(measured) - 1e-12).sum())
    return Paired(100 * float(measured), (1 + extreme) / (1 + len(drawn)))
