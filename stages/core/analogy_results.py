"""The tables of a study of visual analogies: what `tll_adaptation` writes and `tll_report` reads.

recall.parquet    row, at, run, k, recall: aR@k; rows are `concatenated`, `pca` and `sigma_<sigma>`, `at` is the `last`
                  step, or the `best` one by mean aR@1 over runs, which is chosen on the test pairs
ranks.parquet     row, run, pair, rank: the better rank of each test pair, at the last step
nearest.parquet   row, pair, nearest: the right images found for the left ones of run 0's test pairs
history.csv       row, step, loss, recall_at_1: means over runs
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from stages.core.adaptation_training import Training
from stages.core.asymmetric_recall import better_ranks, recall_of
from stages.core.losses.symmetric_softmax import row_blocks

NEAREST = 5


class Results:
    """The rows of the tables that are written."""

    def __init__(self, largest_k: int) -> None:
        self.ks = range(1, largest_k + 1)
        self.recall: list[tuple[str, str, int, int, float]] = []
        self.ranks: list[tuple[str, int, int, int]] = []
        self.nearest: list[tuple[str, int, list[int]]] = []
        self.history: list[tuple[str, int, float, float]] = []

    def add_recall(self, row: str, at: str, run: int, recalls: Tensor) -> None:
        self.recall += [(row, at, run, k, value) for k, value in zip(self.ks, recalls.tolist(), strict=True)]

    def add_run(self, row: str, run: int, tested: np.ndarray, left: Tensor, right: Tensor) -> None:
        """A run's embeddings of its test pairs (unit length): ranks, recall, and for run 0 what is found."""
        (found,) = better_ranks(left[None], right[None])
        self.add_recall(row, "last", run, recall_of(found, self.ks))
        self.ranks += [(row, run, *pair) for pair in zip(tested.tolist(), found.tolist(), strict=True)]
        if run == 0:
            count, rows = min(NEAREST, len(right)), row_blocks(len(left), 4 * len(right))
            nearest = torch.cat([(left[block] @ right.T).topk(count).indices for block in rows]).cpu().numpy()
            self.nearest += [(row, *pair) for pair in zip(tested.tolist(), tested[nearest].tolist(), strict=True)]

    def add_history(self, row: str, states: list[Training]) -> None:
        """The course of all runs; the best step is that of the highest mean aR@1 on the test pairs."""
        recalls = torch.cat([state.recalls for state in states], 1)
        means = recalls[:, :, 0].mean(1)
        for run, values in enumerate(recalls[int(means.argmax())]):
            self.add_recall(row, "best", run, values)
        losses = torch.cat([state.losses for state in states], 1).mean(1)
        steps = states[0].evaluated
        self.history += [(row, s, float(losses[s - 1]), float(m)) for s, m in zip(steps, means, strict=True)]

    def write(self, folder: Path) -> None:
        tables = {
            "recall": (self.recall, ("row", "at", "run", "k", "recall")),
            "ranks": (self.ranks, ("row", "run", "pair", "rank")),
            "nearest": (self.nearest, ("row", "pair", "nearest")),
        }
        for name, (rows, header) in tables.items():
            columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        lines = ["row,step,loss,recall_at_1", *(f"{r},{s},{loss:.6g},{m:.6g}" for r, s, loss, m in self.history)]
        (folder / "history.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
