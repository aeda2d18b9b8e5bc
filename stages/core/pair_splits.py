"""Random splits of pairs into training and test pairs."""

import itertools
import math

import numpy as np
from jaxtyping import Bool


def split(seed: int, runs: int, pairs: int, test_share: float) -> Bool[np.ndarray, "run pair"]:
    """Which pairs each run tests: floor(test_share * pairs) of them at random, another draw for each run.

    A run's draw depends on the seed and its own number only. ValueError where fewer than two pairs would be left on
    either side.
    """
    tested = math.floor(test_share * pairs)
    if not is_enough(pairs, test_share):
        least = next(count for count in itertools.count(4) if is_enough(count, test_share))
        raise ValueError(
            f"{pairs} pairs with test_share {test_share} make {tested} test and {pairs - tested} training pairs; "
            f"two of each are needed: give at least {least} pairs"
        )
    drawn = np.zeros((runs, pairs), dtype=bool)
    for run in range(runs):
        drawn[run, np.random.default_rng([seed, run]).permutation(pairs)[:tested]] = True
    return drawn


def is_enough(pairs: int, test_share: float) -> bool:
    """Whether two pairs or more are left on either side."""
    return 2 <= math.floor(test_share * pairs) <= pairs - 2
