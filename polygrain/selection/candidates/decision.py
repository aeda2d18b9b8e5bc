"""Which candidate is taken: the best by the criterion, or a gentler one that is as good.

A difference counts by its standard error over the sampled images: images of a task are drawn, tasks are given.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from polygrain.selection.criterion import Sample, mean_over_tasks


@dataclass(frozen=True)
class Judged:
    """One candidate's criterion and agreement, an entry for each image of the sample."""

    score: Float[np.ndarray, " image"]
    agreement: Float[np.ndarray, " image"]


def standard_error(values: Float[np.ndarray, " image"]) -> float:
    """Of the mean; infinite for one value alone, which says nothing of its spread."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def noise(difference: Float[np.ndarray, " image"], sample: Sample) -> float:
    """The standard error of the mean over tasks of the tasks' mean differences."""
    errors = [standard_error(difference[own]) for own in sample.parts().values()]
    return math.hypot(*errors) / len(errors)


def falls(measured: Judged, encoder: Judged, sample: Sample, guard: float) -> list[str]:
    """The tasks on which a candidate is below the encoder by more than `guard` standard errors."""
    differences = {task: measured.score[own] - encoder.score[own] for task, own in sample.parts().items()}
    return [task for task, values in differences.items() if values.mean() < -guard * standard_error(values)]


@dataclass(frozen=True)
class Decision:
    """The names of the candidate to take and of the best; `falls` has the tasks on which each is below the encoder."""

    chosen: str
    best: str
    falls: dict[str, list[str]]


def decide(candidates: Mapping[str, Judged], encoder: str, sample: Sample, errors: float, guard: float) -> Decision:
    """Takes one of the candidates; `encoder` names the plain encoder among them.

    Candidates that fall below it on a task are out. Of the rest, the best by the criterion sets the mark. Of those
    within `errors` standard errors of it, the one that agrees most with the reference is taken.
    """
    below = {name: falls(measured, candidates[encoder], sample, guard) for name, measured in candidates.items()}
    allowed = {name: measured for name, measured in candidates.items() if not below[name]}
    best = max(allowed, key=lambda name: mean_over_tasks(allowed[name].score, sample))
    near = []
    for name, measured in allowed.items():
        difference = allowed[best].score - measured.score
        if name == best or mean_over_tasks(difference, sample) <= errors * noise(difference, sample):
            near.append(name)
    return Decision(max(near, key=lambda name: mean_over_tasks(allowed[name].agreement, sample)), best, below)


def interval(
    parts: Sequence[Float[np.ndarray, " _"]], draws: int = 1000, share: float = 0.95
) -> tuple[float, float, float]:
    """The mean of the parts' means and its bootstrap interval, values drawn anew within each part; NaN without any."""
    if not parts:
        return math.nan, math.nan, math.nan
    generator = np.random.default_rng(0)
    means = [part[generator.integers(len(part), size=(draws, len(part)))].mean(1) for part in parts]
    low, high = np.quantile(np.mean(means, 0), [(1 - share) / 2, (1 + share) / 2])
    return float(np.mean([part.mean() for part in parts])), float(low), float(high)
