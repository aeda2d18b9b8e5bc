"""The tables of a study of visual analogies, as `tll_adaptation` fills and writes them; `results` reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from polygrain.tll.adaptation.recall import better_ranks, recall_of
from polygrain.tll.adaptation.training import Training

NEAREST = 5
COLUMNS = {
    "recall": ("row", "at", "run", "k", "recall"),
    "ranks": ("row", "run", "pair", "rank"),
    "nearest": ("row", "pair", "nearest"),
}


class Tables:
    """The rows of all tables, as tuples in the order of `COLUMNS`; `stages/tll_adaptation.py` explains them."""

    def __init__(self, largest_k: int) -> None:
        self.ks = range(1, largest_k + 1)
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in COLUMNS}
        self.history: list[tuple[str, int, float, float]] = []

    def add_recall(self, row: str, at: str, run: int, recalls: Tensor) -> None:
        self.rows["recall"] += [(row, at, run, k, value) for k, value in zip(self.ks, recalls.tolist(), strict=True)]

    def add_run(self, row: str, run: int, tested: np.ndarray, left: Tensor, right: Tensor) -> None:
        """A run's embeddings of its test pairs (unit length): ranks, recall, and for run 0 the nearest images."""
        ranks = better_ranks(left, right)
        self.add_recall(row, "last", run, recall_of(ranks, self.ks))
        pairs = tested.tolist()
        self.rows["ranks"] += [(row, run, *entry) for entry in zip(pairs, ranks.tolist(), strict=True)]
        if run == 0:
            nearest = (left @ right.T).topk(min(NEAREST, len(right))).indices.cpu().numpy()
            self.rows["nearest"] += [(row, *entry) for entry in zip(pairs, tested[nearest].tolist(), strict=True)]

    def add_history(self, row: str, state: Training) -> None:
        """The course of all runs; the best step is that of the highest mean aR@1 on the test pairs."""
        means = state.recalls[:, :, 0].mean(1)
        for run, values in enumerate(state.recalls[int(means.argmax())]):
            self.add_recall(row, "best", run, values)
        losses = state.losses.mean(1)
        self.history += [(row, s, float(losses[s - 1]), float(m)) for s, m in zip(state.evaluated, means, strict=True)]

    def recall_at_1(self) -> dict[str, float]:
        """The mean aR@1 of each row at its last step."""
        values: dict[str, list[float]] = {}
        for row, at, _, k, recall in self.rows["recall"]:
            if at == "last" and k == 1:
                values.setdefault(row, []).append(recall)
        return {row: float(np.mean(recalls)) for row, recalls in values.items()}

    def write(self, folder: Path) -> None:
        for name, columns in COLUMNS.items():
            content = dict(zip(columns, map(list, zip(*self.rows[name], strict=True)), strict=True))
            pq.write_table(pa.table(content), folder / f"{name}.parquet")
        lines = ["row,step,loss,recall_at_1"]
        lines += [f"{row},{step},{loss:.6g},{recall:.6g}" for row, step, loss, recall in self.history]
        (folder / "history.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
