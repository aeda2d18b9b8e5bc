"""The tables of a study of visual analogies, as `tll_adaptation` fills and writes them; `results` reads them.

recall.parquet    row, at, run, k, recall: aR@k; rows are `concatenated`, `pca` and `sigma_<sigma>`, `at` is the `last`
                  step, or the `best` one by mean aR@1 over runs, which is chosen on the test pairs
ranks.parquet     row, run, pair, rank: the better rank of each test pair, at the last step
nearest.parquet   row, pair, nearest: the right images found for the left ones of run 0's test pairs
history.csv       row, step, loss, recall_at_1: means over runs
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from polygrain.compute.blocks import blocks_within
from polygrain.tll.adaptation.recall import better_ranks, recall_of
from polygrain.tll.adaptation.training import Training

NEAREST = 5
BLOCK_BYTES = 8 * 2**20


class RecallRow(NamedTuple):
    row: str
    at: str
    run: int
    k: int
    recall: float


class RankRow(NamedTuple):
    row: str
    run: int
    pair: int
    rank: int


class NearestRow(NamedTuple):
    row: str
    pair: int
    nearest: list[int]


class HistoryRow(NamedTuple):
    row: str
    step: int
    loss: float
    recall_at_1: float


class Tables:
    """The rows of all tables, as they come in."""

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
        last = [found for found in self.recall if found.at == "last" and found.k == 1]
        rows = dict.fromkeys(found.row for found in last)
        return {row: float(np.mean([found.recall for found in last if found.row == row])) for row in rows}

    def write(self, folder: Path) -> None:
        for name, rows in {"recall": self.recall, "ranks": self.ranks, "nearest": self.nearest}.items():
            columns = {field: [getattr(row, field) for row in rows] for field in rows[0]._fields}
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        lines = [f"{step.row},{step.step},{step.loss:.6g},{step.recall_at_1:.6g}" for step in self.history]
        lines = [",".join(HistoryRow._fields), *lines]
        (folder / "history.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
