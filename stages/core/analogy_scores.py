"""What is said about the runs of a study: means over splits, their spread, and how sure a gain is."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

DRAWS = 2000


class Spread(NamedTuple):
    """`deviation` is over splits, `error` is the standard error of the mean: the first over the root of the runs.

    Splits overlap, so the standard error is too small by an unknown amount; `gain` resamples pairs instead.
    """

    mean: float
    deviation: float
    error: float


def spread(values: Float[np.ndarray, " run"]) -> Spread:
    """Mean, standard deviation (n - 1) and standard error of one value per run; no spread where there is one run."""
    deviation = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return Spread(float(values.mean()), deviation, deviation / len(values) ** 0.5)


class Gain(NamedTuple):
    """The difference in aR@k, its 95 % interval, and in how many splits it was above zero."""

    difference: float
    low: float
    high: float
    better: int
    runs: int


def gain(
    before: Int[np.ndarray, "run pair"],
    after: Int[np.ndarray, "run pair"],
    tested: Int[np.ndarray, "run pair"],
    k: int,
    seed: int = 0,
) -> Gain:
    """How much more often pairs are found within rank k, with a paired bootstrap interval.

    `tested` names the pair of each rank. A pair is tested in several splits, so pairs are what is drawn anew, each with
    all its ranks under both models (percentile interval, 2,000 draws).
    """
    differences = (after <= k).astype(np.float64) - (before <= k)
    pairs, owner = np.unique(tested, return_inverse=True)
    totals = np.bincount(owner.ravel(), differences.ravel(), len(pairs))
    counts = np.bincount(owner.ravel(), minlength=len(pairs))
    random = np.random.default_rng(seed)
    drawn = np.empty(DRAWS)
    for i in range(DRAWS):
        chosen = random.integers(0, len(pairs), len(pairs))
        drawn[i] = totals[chosen].sum() / counts[chosen].sum()
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Gain(
        float(differences.mean()), float(low), float(high), int((differences.mean(1) > 0).sum()), len(differences)
    )
