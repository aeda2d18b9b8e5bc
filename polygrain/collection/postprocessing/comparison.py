"""The comparison of a collection: its mean (centring) and its smoothing.

The mean is common to all images and tells none apart. So it is subtracted from every vector and from each query, and
they are normalised again. Images that come later use the same mean.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from jaxtyping import Float32
from pydantic import Field, FiniteFloat, TypeAdapter
from torch import Tensor

from polygrain.collection.postprocessing import strength
from polygrain.collection.postprocessing.diffusion import Shown, Smoothing, linked
from polygrain.collection.postprocessing.strength import NONE, SETTINGS, SmoothingSettings
from polygrain.compute.blocks import by_blocks
from polygrain.compute.vectors import as_vectors, unit_rows

log = logging.getLogger(__name__)
UNPACK = "np.unpackbits(vectors.astype(np.uint8), axis=1)"
# Images that have a mean of their own; fewer have none. That of ten pays already (docs/log.md).
FEWEST_CENTRED = 10
# The variance of rows of unit length, below which they are equal and nothing but rounding is left without the mean.
VARIED = 1e-6
Rows = Float32[np.ndarray, "row dim"]
# From the vectors of a model to its features before the last layer, by which rows are linked.
Front = Callable[[Rows], Float32[np.ndarray, "row axis"]]


@dataclass(frozen=True)
class Comparison:
    """`mean` is taken from vectors, () for none; `alike`: about how many images show the same thing, if it was said."""

    mean: tuple[FiniteFloat, ...] = ()
    smoothing: Smoothing = NONE
    alike: Annotated[int, Field(ge=2)] | None = None

    def __str__(self) -> str:
        return str(self.smoothing)

    @property
    def is_plain(self) -> bool:
        return not self.smoothing.strength

    def unsmoothed(self) -> "Comparison":
        return replace(self, smoothing=NONE)

    def query(self, vectors: Rows) -> Rows:
        """Vectors of a model, of unit length, as queries: the mean is subtracted, and they are normalised again.

        ValueError for vectors of another dimension than the mean.
        """
        if not self.mean:
            return vectors
        if len(self.mean) != vectors.shape[1]:
            raise ValueError(
                f"the collection's mean has {len(self.mean)} numbers, the vectors have {vectors.shape[1]}: "
                "give vectors of the collection's model"
            )
        mean = np.array(self.mean, np.float32)
        return by_blocks(vectors, lambda some: unit_rows(some - mean))

    plain = query

    def uncentred(self, rows: Rows) -> Rows:
        """The inverse of `query`: vectors of a model from centred rows."""
        if not self.mean:
            return rows
        mean = np.array(self.mean)
        along = rows @ mean
        lengths = np.sqrt(np.maximum(along**2 + 1 - mean @ mean, 0)) - along
        return (mean + lengths[:, None] * rows).astype(np.float32)

    def rows(self, vectors: Rows, front: Front | None = None, shown: Shown = iter) -> Rows:
        """Vectors of a model as they are searched."""
        rows = self.query(vectors)
        if self.is_plain or len(vectors) < 2:
            return rows
        return linked(vectors if front is None else front(vectors), rows, self.smoothing, shown)

    def to_json(self) -> str:
        return ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Comparison":
        """The comparison in a text of `to_json`; ValueError for any other text."""
        return ADAPTER.validate_json(text)


ADAPTER = TypeAdapter(Comparison)
# Vectors as a model gives them.
PLAIN = Comparison()


def directions(vectors: np.ndarray | Tensor, name: str = "vectors") -> Float32[np.ndarray, "row dim"]:
    """Anyone's vectors as rows of unit length; ValueError for values that are not finite, and for a row of zeros."""
    rows = as_vectors(vectors, name).cpu().numpy()
    if "int" in str(vectors.dtype) and len(rows) and rows.min() >= -128 and 1 < rows.max() < 256:
        log.warning("%s hold bytes, which are read as numbers: unpack packed bits before, by %s", name, UNPACK)
    empty = np.flatnonzero(~rows.any(1))
    if len(empty):
        raise ValueError(f"row {empty[0]} of {name} is all zeros ({len(empty)} such rows): remove them")
    return by_blocks(rows, unit_rows)


def mean_of(vectors: Rows) -> tuple[float, ...]:
    """The mean of vectors, as a comparison keeps it; () of fewer than `FEWEST_CENTRED`, and of equal ones."""
    if len(vectors) < FEWEST_CENTRED:
        return ()
    mean = vectors.mean(0, dtype=np.float64)
    return tuple(mean.astype(np.float32).tolist()) if 1 - mean @ mean > VARIED else ()


def choose(
    vectors: Rows,
    alike: int | None = None,
    settings: SmoothingSettings = SETTINGS,
    mean: tuple[float, ...] | None = None,
    front: Front | None = None,
) -> tuple[Comparison, strength.Chosen]:
    """The comparison of these vectors, and the choice of its smoothing; `mean`: None for their own."""
    mean = mean_of(vectors) if mean is None else mean
    chosen = strength.choose(vectors if front is None else front(vectors), settings, alike=alike)
    return Comparison(mean, chosen.smoothing, alike=alike), chosen
