"""Rows mixed with those nearest to them (Tolias and Jégou's alpha query expansion, of a collection itself)."""

import numpy as np
from jaxtyping import Float32

from polygrain.compute.blocks import blocks
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.approximate import nearest_others

POWER = 3.0
# Share of the nearest rows that an index finds, where there are too many to compare all; rows fetched at once.
RECALL, FETCHED = 0.95, 4096


def mixed(
    rows: Float32[np.ndarray, "row dim"], nearest: Float32[np.ndarray, "row rank dim"]
) -> Float32[np.ndarray, "row dim"]:
    """Each row with its nearest added, each weighted by its cosine^3; all are of unit length."""
    shares = np.maximum(np.einsum("nd,nrd->nr", rows, nearest), 0) ** np.float32(POWER)
    return unit_rows(rows + np.einsum("nr,nrd->nd", shares, nearest))


def mixed_with_others(rows: Float32[np.ndarray, "row dim"], count: int) -> Float32[np.ndarray, "row dim"]:
    """The rows, of unit length, each mixed with its `count` nearest others (or as many as there are)."""
    count = min(count, len(rows) - 1)
    if count < 1:
        return rows
    neighbours = nearest_others(rows, count, "auto", RECALL).neighbours
    return np.concatenate([mixed(rows[part], rows[neighbours[part]]) for part in blocks(len(rows), FETCHED)])
