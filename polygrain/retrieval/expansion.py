"""Rows mixed with their nearest: alpha query expansion, and the same done to every row of a gallery beforehand.

A row becomes the sum of itself and its nearest rows, each by a power of its cosine (Radenović, Tolias and Chum,
"Fine-tuning CNN image retrieval with no human annotation", whose alpha of 3 this is). Done to a gallery it is
database-side augmentation (Arandjelović and Zisserman, "Three things everyone should know to improve object
retrieval"). Three neighbours, since classes may be small; no labels chose that.
"""

from itertools import pairwise

import numpy as np
from jaxtyping import Float32

from polygrain.compute.blocks import blocks
from polygrain.compute.distributed import Distributed
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.approximate import nearest_others

NEAREST, ALPHA = 3, 3.0
# Of the nearest rows that an index finds where there are too many to compare all.
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


def mixed(rows: Distributed, count: int) -> Float32[np.ndarray, "row dim"]:
    """The rows of this process, of unit length, each mixed with its `count` nearest others of all (or as many as are).

    Rows come with unit length. All processes fetch together, so each sees the neighbours of all.
    """
    count, found = min(count, len(rows) - 1), [np.empty((0, rows.shape[1]), np.float32)]
    if count < 1:
        return rows.part
    neighbours = nearest_others(rows, count, "auto", RECALL).neighbours
    for first, last in pairwise(rows.edges):
        for part in blocks(slice(first, last), FETCHED):
            offered = rows[neighbours[part].ravel()].reshape(-1, count, rows.shape[1])
            if slice(first, last) == rows.own:
                found.append(expanded(rows.part[part.start - first : part.stop - first], offered))
    return np.concatenate(found)
