"""The results of a study of visual analogies, read from its tables and compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from polygrain.store.tables import read_csv, read_parquet

DRAWS = 2000


class Spread(NamedTuple):
    """`deviation` is over splits, `error` is the standard error of the mean: the first over the root of the runs.

    Splits overlap, so the standard error is too small by an unknown amount; `gain` resamples pairs instead.
    """

    mean: float
    deviation: float
    error: float


def over_runs(values: Float[np.ndarray, " run"]) -> Spread:
    """Mean, standard deviation (n - 1) and standard error of one value per run; no spread where there is one run."""
    deviation = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return Spread(float(values.mean()), deviation, deviation / len(values) ** 0.5)


class Gain(NamedTuple):
    """A difference in aR@k, its 95 % interval, and in how many splits it was above zero."""

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
    """The gain in pairs found within rank k, with a paired bootstrap interval (2,000 draws).

    `tested` names the pair of each rank. A pair is tested in several splits, so whole pairs are drawn anew, each
    with all its ranks under both models.
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
    better = int((differences.mean(1) > 0).sum())
    return Gain(float(differences.mean()), float(low), float(high), better, len(differences))


@dataclass(frozen=True)
class Study:
    """`recalls[row, at]` is `run k` in percent; `ranks[row]` is run -> {pair: rank}, of the same pairs in all rows."""

    recalls: dict[tuple[str, str], Float[np.ndarray, "run k"]]
    ranks: dict[str, dict[int, dict[int, int]]]
    history: list[dict[str, str]]

    @property
    def rows(self) -> list[str]:
        return list(self.ranks)

    def spread(self, row: str, k: int, at: str = "last") -> Spread | None:
        """Mean and spread of aR@k over runs; None where the row has no such number."""
        values = self.recalls.get((row, at))
        if values is None or k > values.shape[1]:
            return None
        return over_runs(values[:, k - 1])

    def gain(self, before: str, after: str, k: int = 1) -> Gain:
        """The gain of one row over another in percent, paired."""
        runs = sorted(self.ranks[before])
        tested = np.array([sorted(self.ranks[before][run]) for run in runs])
        old, new = (
            np.array([[self.ranks[row][run][pair] for pair in pairs] for run, pairs in zip(runs, tested, strict=True)])
            for row in (before, after)
        )
        share = gain(old, new, tested, k)
        return share._replace(difference=100 * share.difference, low=100 * share.low, high=100 * share.high)


def read(folder: Path) -> Study:
    """The tables of one study; ValueError where one is missing or damaged."""
    recall, ranks = (read_parquet(folder / f"{name}.parquet").to_pydict() for name in ("recall", "ranks"))
    history = read_csv(folder / "history.csv")
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row, at, run, value in zip(*(recall[name] for name in ("row", "at", "run", "recall")), strict=True):
        values.setdefault((row, at), {}).setdefault(run, []).append(100 * value)
    table: dict[str, dict[int, dict[int, int]]] = {}
    for row, run, pair, rank in zip(*(ranks[name] for name in ("row", "run", "pair", "rank")), strict=True):
        table.setdefault(row, {}).setdefault(run, {})[pair] = rank
    return Study({key: np.array([runs[run] for run in sorted(runs)]) for key, runs in values.items()}, table, history)
