"""Rows mixed with their nearest: alpha query expansion, and the same done to every row of a gallery beforehand.

A row becomes the sum of itself and its nearest rows, each weighted by its cosine^alpha (Radenović, Tolias and Chum,
"Fine-tuning CNN image retrieval with no human annotation"; their alpha is 3). For a gallery this is database-side
augmentation (Arandjelović and Zisserman, "Three things everyone should know to improve object retrieval"). There are
three neighbours, since classes may be small; no labels chose that.
"""

import numpy as np
from jaxtyping import Float32

from polygrain.compute.blocks import blocks
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.approximate import nearest_others

NEAREST, ALPHA = 3, 3.0
# Share of the nearest rows that an index finds, where there are too many to compare all.
RECALL = 0.95
# Rows whose neighbours are fetched at once.
FETCHED = 4096


def shares(
    rows: Float32[np.ndarray, "row dim"], neighbours: Float32[np.ndarray, "row rank dim"]
) -> Float32[np.ndarray, "row rank dim"]:
    """What each neighbour adds to its row: itself by cosine^alpha; nothing where the cosine is below 0."""
    cosines = np.einsum("nd,nrd->nr", rows, neighbours)
    return np.maximum(cosines, 0)[:, :, None] ** np.float32(ALPHA) * neighbours


def expanded(
    rows: Float32[np.ndarray, "row dim"], neighbours: Float32[np.ndarray, "row rank dim"]
) -> Float32[np.ndarray, "row dim"]:
    """Each row with its neighbours added, of unit length; all come with unit length."""
    return unit_rows(rows + shares(rows, neighbours).sum(1))


def mixed(rows: Float32[np.ndarray, "row dim"], count: int) -> Float32[np.ndarray, "row dim"]:
    """The rows, of unit length, each mixed with its `count` nearest others (or as many as there are)."""
    count = min(count, len(rows) - 1)
    if count < 1:
        return rows
    neighbours = nearest_others(rows, count, "auto", RECALL).neighbours
    return np.concatenate([expanded(rows[part], rows[neighbours[part]]) for part in blocks(len(rows), FETCHED)])
