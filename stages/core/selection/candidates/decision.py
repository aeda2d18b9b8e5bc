"""Which candidate is taken: the best by the criterion, or a gentler one that is as good as can be told.

A difference is told by its standard error over the sampled images: images of a task are drawn, tasks are given.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stages.core.selection.criterion import Sample, mean_over_tasks


@dataclass(frozen=True)
class Judged:
    """One candidate's criterion and agreement, an entry for each image of the sample."""

    score: Float[np.ndarray, " image"]
    agreement: Float[np.ndarray, " image"]


def standard_error(values: Float[np.ndarray, " image"]) -> float:
    """Of the mean; infinite for one value alone, which tells nothing."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def noise(difference: Float[np.ndarray, " image"], sample: Sample) -> float:
    """The standard error of the mean over tasks of the tasks' mean differences."""
    errors = [standard_error(difference[own]) for own in sample.parts().values()]
    return math.hypot(*errors) / len(errors)


def falls(measured: Judged, encoder: Judged, sample: Sample, guard: float) -> list[str]:
    """The tasks on which a candidate is below the encoder by more than `guard` standard errors."""
    found = []
    for task, own in sample.parts().items():
        difference = measured.score[own] - encoder.score[own]
        if difference.mean() < -guard * standard_error(difference):
            found.append(task)
    return found


def decide(candidates: Mapping[str, Judged], encoder: str, sample: Sample, errors: float, guard: float) -> str:
    """The name of the candidate to take. `encoder` names the plain encoder, which is always allowed.

    Those that fall below the encoder on a task are left out (`falls`); of the rest the best by the criterion sets the
    mark. Of those within `errors` standard errors of it, the one that keeps most of the reference's neighbours is
    taken.
    """
    allowed = {
        name: measured
        for name, measured in candidates.items()
        if name == encoder or not falls(measured, candidates[encoder], sample, guard)
    }
    best = max(allowed, key=lambda name: mean_over_tasks(allowed[name].score, sample))
    near = []
    for name, measured in allowed.items():
        difference = allowed[best].score - measured.score
        if name == best or mean_over_tasks(difference, sample) <= errors * noise(difference, sample):
            near.append(name)
    return max(near, key=lambda name: mean_over_tasks(allowed[name].agreement, sample))


def interval(
    values: Float[np.ndarray, " image"], sample: Sample, tasks: Sequence[str], draws: int = 1000, share: float = 0.95
) -> tuple[float, float, float]:
    """The mean over `tasks` and its bootstrap interval, images drawn anew within each task; NaN without tasks."""
    parts = [values[own] for task, own in sample.parts().items() if task in tasks]
    if not parts:
        return math.nan, math.nan, math.nan
    generator = np.random.default_rng(0)
    means = [part[generator.integers(len(part), size=(draws, len(part)))].mean(1) for part in parts]
    low, high = np.quantile(np.mean(means, 0), [(1 - share) / 2, (1 + share) / 2])
    return float(np.mean([part.mean() for part in parts])), float(low), float(high)
