"""The rule: a verdict follows from differences over seeds, their standard error and a bar."""

import re
from collections.abc import Mapping
from statistics import fmean, stdev
from typing import NamedTuple

Values = Mapping[int, tuple[float, float | None]]
"""{seed: (value, standard error within its run, None where unknown)}"""
Numbers = Mapping[tuple[str, str], Values]
"""{(side, quantity): values}"""


class Comparison(NamedTuple):
    verdict: str
    mean: float
    error: float | None
    sides: tuple[float, float]
    seeds: int


def weakest(verdicts: list[str]) -> str:
    return next(verdict for verdict in ("untested", "against", "open", "holds") if verdict in verdicts)


def values_of(numbers: Numbers, side: str, quantity: str, lower: bool = False) -> Values:
    """A side by seed. `best of A, B`: the better one with each seed; `own of A, B`: the one that is better with the
    other seeds; `one of A, B`: the one whose `mean` is."""
    derived = re.fullmatch("(best|own|one) of (.+)", side)
    if derived is None:
        return numbers.get((side, quantity), {})
    every = [numbers.get((name, quantity), {}) for name in re.split(", *", derived[2])]
    judges = [numbers.get((name, "mean"), {}) for name in re.split(", *", derived[2])] if derived[1] == "one" else every
    seeds, sign, result = set.intersection(*map(set, every + judges)), -1 if lower else 1, {}
    for seed in sorted(seeds):
        by = {seed} if derived[1] == "best" else seeds - {seed}
        if by:
            marks = [sign * fmean(judge[other][0] for other in by) for judge in judges]
            result[seed] = every[marks.index(max(marks))][seed]
    return result


def compare(
    numbers: Numbers, better: str, worse: str | float, quantity: str, lower: bool = False, bar: float = 0
) -> Comparison | None:
    """One comparison, paired by seed; None without numbers. One seed has the errors within its runs."""
    high = values_of(numbers, better, quantity, lower)
    low = values_of(numbers, worse, quantity, lower) if isinstance(worse, str) else dict.fromkeys(high, (worse, 0.0))
    pairs = [(high[seed], low[seed]) for seed in sorted(high.keys() & low.keys())]
    if not pairs:
        return None
    differences = [b - a if lower else a - b for (a, _), (b, _) in pairs]
    mean, errors = fmean(differences), [error for one in pairs[0] if (error := one[1]) is not None]
    error = sum(error**2 for error in errors) ** 0.5 if len(errors) == 2 else None
    if len(pairs) > 1:
        error = stdev(differences) / len(pairs) ** 0.5
    is_open = error is None or abs(mean - bar) <= 2 * error
    verdict = "open" if is_open else "holds" if mean > bar else "against"
    sides = (fmean(a for (a, _), _ in pairs), fmean(b for _, (b, _) in pairs))
    return Comparison(verdict, mean, error, sides, len(pairs))
