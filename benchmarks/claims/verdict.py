"""The rule: a verdict follows from differences over seeds, their standard error and a bar."""

import re
from collections.abc import Mapping
from statistics import fmean, stdev
from typing import NamedTuple

Value = tuple[float, float | None]
"""a number and its standard error within the run, None where that is unknown"""
Numbers = Mapping[tuple[str, str], Mapping[int, Value]]
"""{(side, quantity): {seed: value}}"""


class Comparison(NamedTuple):
    verdict: str
    mean: float
    error: float | None
    sides: tuple[float, float]
    seeds: int


def values_of(numbers: Numbers, side: str, quantity: str, lower: bool = False) -> Mapping[int, Value]:
    """A side by seed. `best of A, B`: the better one with each seed; `own of A, B`: the one that is better with the
    other seeds; `one of A, B`: the one whose `mean` is. The quantity `mean of X, Y` is the mean of a side's X and Y."""
    if quantity.startswith("mean of "):
        parts = [values_of(numbers, side, part, lower) for part in re.split(", *", quantity[8:])]
        return {seed: (fmean(part[seed][0] for part in parts), None) for seed in set.intersection(*map(set, parts))}
    if (derived := re.fullmatch("(best|own|one) of (.+)", side)) is None:
        return numbers.get((side, quantity), {})
    kind, names = derived[1], re.split(", *", derived[2])
    every, means = ([numbers.get((name, of), {}) for name in names] for of in (quantity, "mean"))
    judges = means if kind == "one" else every
    seeds, result = set.intersection(*map(set, every + judges)), {}
    for seed in seeds:
        if by := {seed} if kind == "best" else seeds - {seed}:
            marks = [fmean(judge[other][0] for other in by) * (-1 if lower else 1) for judge in judges]
            result[seed] = every[marks.index(max(marks))][seed]
    return result


def compare(
    numbers: Numbers, better: str, worse: str | float, quantity: str, lower: bool = False, bar: float = 0
) -> Comparison | None:
    """One comparison, paired by seed; None without numbers. One seed has the errors within its run."""
    high = values_of(numbers, better, quantity, lower)
    low = values_of(numbers, worse, quantity, lower) if isinstance(worse, str) else dict.fromkeys(high, (worse, 0.0))
    pairs = [(high[seed], low[seed]) for seed in sorted(high.keys() & low.keys())]
    if not pairs:
        return None
    differences = [b - a if lower else a - b for (a, _), (b, _) in pairs]
    mean, errors = fmean(differences), [error for _, error in pairs[0] if error is not None]
    error = sum(error**2 for error in errors) ** 0.5 if len(errors) == 2 else None
    if len(pairs) > 1:
        error = stdev(differences) / len(pairs) ** 0.5
    is_open = error is None or abs(mean - bar) <= 2 * error
    verdict = "open" if is_open else "holds" if mean > bar else "against"
    return Comparison(
        verdict, mean, error, (fmean(a for (a, _), _ in pairs), fmean(b for _, (b, _) in pairs)), len(pairs)
    )
