"""Diffusion on the neighbour graph of a collection: an image becomes like the images it is linked to, step by step.

Two rows are linked where each is among the other's nearest; a link weighs their cosine^power. With S the weights,
normalised by degrees on both sides, the smoothed rows are T = (I - strength S)^-1 Z = Z + strength S T: random walks
that go on with probability `strength` (Zhou et al., "Learning with local and global consistency"; Iscen et al.,
"Efficient diffusion on region manifolds"). A row without a link stays, and so do queries.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float32, Int64
from pydantic import Field, FiniteFloat
from scipy.sparse import csr_array, diags_array

from polygrain.compute import device
from polygrain.compute.blocks import Rows, blocks
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import whitening
from polygrain.retrieval.approximate import nearest_others

POWER = 3.0
# Share of the nearest rows that an index finds, where there are too many to compare all.
RECALL = 0.95
# Of the right side, which is left of the equation where it counts as solved, and rounds at most.
TOLERANCE, ROUNDS = 1e-4, 100
# Columns solved at once, and rows whose neighbours are fetched at once.
BLOCK_COLUMNS, FETCHED = 64, 4096
Shown = Callable[[list[slice]], Iterable[slice]]
# Axes, at most, by which rows are linked.
AXES = 256


@dataclass(frozen=True)
class Smoothing:
    """The smoothing of a collection; strength 0: none."""

    strength: Annotated[float, Field(ge=0, lt=1)] = 0.0
    neighbours: Annotated[int, Field(ge=1)] = 1
    power: FiniteFloat = POWER

    def __str__(self) -> str:
        values = f"{self.neighbours} neighbours, strength {self.strength:g}"
        return f"smoothed by {values}" if self.strength else "not smoothed"


def neighbours_of(vectors: Rows, count: int, shown: Shown = iter) -> Int64[np.ndarray, "row rank"]:
    """The `count` nearest others of each row; ValueError where there are fewer."""
    return nearest_others(vectors, count, "auto", RECALL, shown=shown).neighbours


def cosines(vectors: Rows, neighbours: Int64[np.ndarray, "row rank"]) -> Float32[np.ndarray, "row rank"]:
    """The inner product of each row with each of its neighbours."""
    result = np.empty(neighbours.shape, np.float32)
    for part in blocks(len(neighbours), FETCHED):
        result[part] = np.einsum("nd,nrd->nr", vectors[part], vectors[neighbours[part]])
    return result


def links(
    neighbours: Int64[np.ndarray, "row rank"], cosines: Float32[np.ndarray, "row rank"], power: float = POWER
) -> csr_array:
    """The weights `row row` of mutual neighbours, symmetric and not normalised; cosines below 0 link nothing."""
    n, ranks = neighbours.shape
    weights = np.maximum(cosines, 0) ** np.float32(power)
    starts = np.arange(n + 1) * ranks
    one_way = csr_array((weights.ravel(), neighbours.ravel(), starts), shape=(n, n))
    mutual = one_way.minimum(one_way.T.tocsr())
    mutual.eliminate_zeros()
    return mutual


def normalised(weights: csr_array) -> csr_array:
    """D^-1/2 W D^-1/2 with D the sums of rows; rows without a link stay empty."""
    degrees = np.asarray(weights.sum(1))
    scales = diags_array(np.where(degrees > 0, degrees, 1).astype(np.float32) ** np.float32(-0.5))
    return (scales @ weights @ scales).tocsr()


def smoothed(
    vectors: Float32[np.ndarray, "row dim"], weights: csr_array, strength: float, shown: Shown = iter
) -> Float32[np.ndarray, "row dim"]:
    """(I - strength S)^-1 Z by conjugate gradients, S the normalised weights; rows are not of unit length."""
    if not 0 <= strength < 1:
        raise ValueError(f"strength is {strength}; allowed is 0 to below 1")
    matrix, result = np.float32(strength) * normalised(weights), np.empty_like(vectors)
    where = device.best()
    for columns in shown(blocks(vectors.shape[1], device.roomy(BLOCK_COLUMNS, where, 4))):
        right = np.ascontiguousarray(vectors[:, columns])
        result[:, columns] = solve(matrix, right, where)
    return result


def linked(
    by: Float32[np.ndarray, "row link"], rows: Float32[np.ndarray, "row dim"], smoothing: Smoothing, shown: Shown = iter
) -> Float32[np.ndarray, "row dim"]:
    """Rows of unit length, smoothed by those nearest in `by`."""
    turned = turned_to_link(by)
    neighbours = neighbours_of(turned, min(smoothing.neighbours, len(rows) - 1), shown)
    weights = links(neighbours, cosines(turned, neighbours), smoothing.power)
    result = smoothed(rows, weights, smoothing.strength, shown)
    for part in blocks(len(result), FETCHED):
        result[part] = unit_rows(result[part])
    return result


def turned_to_link(rows: Float32[np.ndarray, "row dim"]) -> Float32[np.ndarray, "row axis"]:
    """The rows as they are linked, quarter-whitened: otherwise a few long axes decide which rows are near.

    A row of zeros is like nothing and stays one.
    """
    fitted = whitening.fit_if_varied(rows, AXES, "quarter")
    if fitted is None:
        return rows
    turned = whitening.apply(fitted, rows)
    turned[~rows.any(1)] = 0
    return turned


def solve(
    matrix: csr_array, right: Float32[np.ndarray, "row column"], where: torch.device
) -> Float32[np.ndarray, "row column"]:
    """X of (I - matrix) X = right, for a symmetric matrix whose eigenvalues are below 1."""
    with warnings.catch_warnings(action="ignore"):  # torch calls the layout young
        starts, places, values = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
        links = torch.sparse_csr_tensor(starts, places, values, matrix.shape).to(where)
    columns = torch.from_numpy(right).to(where)
    result, rest = columns.clone(), links @ columns
    direction, size = rest.clone(), rest.square().sum(0)
    enough, tiny = TOLERANCE**2 * columns.square().sum(0), torch.finfo(torch.float32).tiny
    for _ in range(ROUNDS):
        if (size <= enough).all():
            break
        change = direction - links @ direction
        step = size / (direction * change).sum(0).clamp_min(tiny)
        result += step * direction
        rest -= step * change
        before, size = size, rest.square().sum(0)
        direction = rest + size / before.clamp_min(tiny) * direction
    return result.cpu().numpy()
