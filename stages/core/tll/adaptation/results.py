"""The tables of a study of visual analogies: what `tll_adaptation` writes and `tll_report` reads.

recall.parquet    row, at, run, k, recall: aR@k; rows are `concatenated`, `pca` and `sigma_<sigma>`, `at` is the `last`
                  step, or the `best` one by mean aR@1 over runs, which is chosen on the test pairs
ranks.parquet     row, run, pair, rank: the better rank of each test pair, at the last step
nearest.parquet   row, pair, nearest: the right images found for the left ones of run 0's test pairs
history.csv       row, step, loss, recall_at_1: means over runs
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float, Int
from torch import Tensor

from stages.core.compute.blocks import blocks_within
from stages.core.store.reading import reading, remedy_for
from stages.core.tll.adaptation.recall import better_ranks, recall_of
from stages.core.tll.adaptation.training import Training

NEAREST = 5
BLOCK_BYTES = 8 * 2**20


class RecallRow(NamedTuple):
    """A row of `recall.parquet`."""

    row: str
    at: str
    run: int
    k: int
    recall: float


class RankRow(NamedTuple):
    """A row of `ranks.parquet`."""

    row: str
    run: int
    pair: int
    rank: int


class NearestRow(NamedTuple):
    """A row of `nearest.parquet`."""

    row: str
    pair: int
    nearest: list[int]


class HistoryRow(NamedTuple):
    """A row of `history.csv`."""

    row: str
    step: int
    loss: float
    recall_at_1: float


class Results:
    """The rows of the tables that are written."""

    def __init__(self, largest_k: int) -> None:
        self.ks = range(1, largest_k + 1)
        self.recall: list[RecallRow] = []
        self.ranks: list[RankRow] = []
        self.nearest: list[NearestRow] = []
        self.history: list[HistoryRow] = []

    def add_recall(self, row: str, at: str, run: int, recalls: Tensor) -> None:
        self.recall += [RecallRow(row, at, run, k, value) for k, value in zip(self.ks, recalls.tolist(), strict=True)]

    def add_run(self, row: str, run: int, tested: np.ndarray, left: Tensor, right: Tensor) -> None:
        """A run's embeddings of its test pairs (unit length): ranks, recall, and for run 0 what is found."""
        (found,) = better_ranks(left[None], right[None])
        self.add_recall(row, "last", run, recall_of(found, self.ks))
        self.ranks += [RankRow(row, run, *pair) for pair in zip(tested.tolist(), found.tolist(), strict=True)]
        if run == 0:
            count, rows = min(NEAREST, len(right)), blocks_within(len(left), 4 * len(right), BLOCK_BYTES)
            nearest = torch.cat([(left[block] @ right.T).topk(count).indices for block in rows]).cpu().numpy()
            self.nearest += [
                NearestRow(row, *pair) for pair in zip(tested.tolist(), tested[nearest].tolist(), strict=True)
            ]

    def add_history(self, row: str, states: list[Training]) -> None:
        """The course of all runs; the best step is that of the highest mean aR@1 on the test pairs."""
        recalls = torch.cat([state.recalls for state in states], 1)
        means = recalls[:, :, 0].mean(1)
        for run, values in enumerate(recalls[int(means.argmax())]):
            self.add_recall(row, "best", run, values)
        losses = torch.cat([state.losses for state in states], 1).mean(1)
        steps = states[0].evaluated
        self.history += [HistoryRow(row, s, float(losses[s - 1]), float(m)) for s, m in zip(steps, means, strict=True)]

    def recall_at_1(self) -> dict[str, float]:
        """The mean aR@1 of each row at its last step."""
        rows = dict.fromkeys(found.row for found in self.recall)
        last = [found for found in self.recall if found.at == "last" and found.k == 1]
        return {row: float(np.mean([found.recall for found in last if found.row == row])) for row in rows}

    def write(self, folder: Path) -> None:
        for name, rows in {"recall": self.recall, "ranks": self.ranks, "nearest": self.nearest}.items():
            columns = {field: [getattr(row, field) for row in rows] for field in rows[0]._fields}
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        lines = [f"{step.row},{step.step},{step.loss:.6g},{step.recall_at_1:.6g}" for step in self.history]
        lines = [",".join(HistoryRow._fields), *lines]
        (folder / "history.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


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

    `tested` names the pair of each rank. A pair is tested in several splits, so whole pairs are drawn anew, each
    with all its ranks under both models. The interval is that of the percentiles of 2,000 draws.
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


@dataclass(frozen=True)
class Comparison:
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
        sides = [
            np.array([[self.ranks[row][run][pair] for pair in pairs] for run, pairs in zip(runs, tested, strict=True)])
            for row in (before, after)
        ]
        found = gain(*sides, tested, k)
        return found._replace(difference=100 * found.difference, low=100 * found.low, high=100 * found.high)


def read(folder: Path) -> Comparison:
    """The tables of one study; ValueError where one is missing or damaged."""
    with reading(folder, remedy_for(folder)):
        recall, ranks = (pq.read_table(folder / f"{name}.parquet").to_pydict() for name in ("recall", "ranks"))
        with (folder / "history.csv").open(newline="", encoding="utf-8") as lines:
            history = list(csv.DictReader(lines))
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row, at, run, value in zip(*(recall[name] for name in ("row", "at", "run", "recall")), strict=True):
        values.setdefault((row, at), {}).setdefault(run, []).append(100 * value)
    table: dict[str, dict[int, dict[int, int]]] = {}
    for row, run, pair, rank in zip(*(ranks[name] for name in ("row", "run", "pair", "rank")), strict=True):
        table.setdefault(row, {}).setdefault(run, {})[pair] = rank
    return Comparison(
        {key: np.array([runs[run] for run in sorted(runs)]) for key, runs in values.items()}, table, history
    )
