"""Rows mixed with their nearest: alpha query expansion, and the same done to every row of a gallery beforehand.

A row becomes the sum of itself and its nearest rows, each by a power of its cosine (Radenović, Tolias and Chum,
"Fine-tuning CNN image retrieval with no human annotation", whose alpha of 3 this is). Done to a gallery it is
database-side augmentation (Arandjelović and Zisserman, "Three things everyone should know to improve object
retrieval"). Three neighbours, since classes may be small; no labels chose that.
"""

import numpy as np
from jaxtyping import Float32

from stages.core.compute.vectors import unit_rows

NEAREST, ALPHA = 3, 3.0


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
