"""Graphs of nearest neighbours that a stage has written: how they were made, and how two of them differ."""

from pathlib import Path

import numpy as np
from jaxtyping import Int64

from polygrain.store.reading import read_json


def search_of(knn_graph: Path) -> tuple[str, float]:
    """The kind of index that made a graph, and the recall that was asked of it; an exact graph has no summary."""
    file = knn_graph / "summary.json"
    if not file.exists():
        return "exact", 1.0
    summary = read_json(file)
    return str(summary["index"]), float(summary["wanted"])


def turnover(before: Int64[np.ndarray, "image rank"], after: Int64[np.ndarray, "image rank"]) -> float:
    """The share of each image's neighbours that it did not have before, mean over images."""
    return 1 - float((after[:, :, None] == before[:, None, :]).any(2).mean())
