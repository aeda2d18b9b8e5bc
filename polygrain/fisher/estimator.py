"""The closed form as an estimator of scikit-learn, for vectors of any encoder.

Rows are brought to unit length, and their mean is subtracted. Clusters of each of `SIZES` are sought among the
half-whitened rows: one k-means++ order for all, and Lloyd's iterations for each. Of very many rows whole cells of rows
that lie together are clustered (clustering/sampled.py); mean and total scatter are of all.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int64
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.sampled import draw_cells
from polygrain.clustering.seeding import nearest_seeds, seed_order
from polygrain.compute.blocks import Rows, blocks_within
from polygrain.compute.vectors import unit_rows
from polygrain.fisher.closed_form import Basis, Turned, basis_of, closed_form
from polygrain.fisher.scatter import BLOCK_VALUES, Scatter, within_clusters
from polygrain.retrieval.whitening import Affine
from polygrain.store.drafts import drafted
from polygrain.store.reading import reading

# Rows of a cluster, one granularity each.
SIZES = (2, 4, 8, 24)
# The least shrinkage of the scatter, since there are no views; more where `alike` is below `FEW`.
LEAST, MORE, FEW = 0.5, 0.8, 10
# Half-whitened axes in which clusters are sought, and Lloyd's iterations, at most.
CLUSTERED, ITERATIONS = 256, 20


class Units:
    """Rows read by slices, each of unit length; those of zeros stay."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.shape = rows, rows.shape

    def __getitem__(self, part: slice | np.ndarray) -> Float32[np.ndarray, "row dim"]:
        rows = self.rows[part]
        # The squares of a row of any size are to be numbers.
        largest = np.abs(rows).max(1, keepdims=True)
        return unit_rows((rows / np.where(largest > 0, largest, 1)).astype(np.float32))


class ClusterWhitening(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A linear layer behind any encoder, learnt from clusters of the vectors themselves; rows come out of unit length.

    `alike`: about how many rows show the same thing, if known; with fewer, it learns less. `sample`: rows that are
    clustered, at most. Learnt: `mean_`, which is subtracted from rows of unit length, and `projection_`
    `dim component`, the layer, whose first axes tell most apart. Rows that do not vary have no layer, and are only
    brought to unit length.
    """

    def __init__(self, alike: Any = None, sample: Any = 20_000, random_state: Any = 0) -> None:
        # scikit-learn sets anything here; `fit` says what is wrong.
        self.alike, self.sample, self.random_state = alike, sample, random_state

    def fit(self, X: Any, y: Any = None) -> "ClusterWhitening":
        """Learns the layer of vectors; `y`: their clusters or labels, where they are known."""
        if self.sample < 1 or (self.alike is not None and self.alike < 1):
            raise ValueError(f"sample is {self.sample}, alike {self.alike}; allowed is 1 or more, and None for alike")
        given = validate_data(self, X, dtype=[np.float32, np.float64])
        labels = None if y is None else np.unique(column_or_1d(y, warn=True), return_inverse=True)[1]
        if labels is not None and len(labels) != len(given):
            raise ValueError(f"X has {len(given):,} rows, y {len(labels):,}: give a cluster for each row")
        layer = learnt(Units(given), self.alike, labels, self.sample, seed_of(self.random_state))
        return self.of(layer.mean, layer.projection)

    def of(
        self, mean: Float32[np.ndarray, " dim"], projection: Float32[np.ndarray, "dim component"]
    ) -> "ClusterWhitening":
        """Takes a layer that was learnt before."""
        self.mean_, self.projection_ = mean, projection
        self.n_features_in_, self._n_features_out = projection.shape
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The rows behind the layer, `row component`, of unit length (zero where nothing is left)."""
        check_is_fitted(self)
        given = validate_data(self, X, dtype=[np.float32, np.float64], reset=False)
        result, mean = np.empty((len(given), self._n_features_out), given.dtype), self.mean_.astype(np.float64)
        for part in blocks_within(len(given), given.shape[1], BLOCK_VALUES):
            result[part] = unit_rows((Units(given)[part] - mean) @ self.projection_.astype(np.float64))
        return result

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def save(layer: ClusterWhitening, file: str | Path) -> None:
    """Writes mean and projection as arrays of a .npz."""
    with drafted(Path(file)) as draft, draft.open("wb") as stream:
        np.savez(stream, mean=layer.mean_, projection=layer.projection_)


def load(file: str | Path) -> ClusterWhitening:
    """The layer that `save` wrote; its `transform` takes vectors of the same encoder as they ask."""
    with reading(file, "name the .layer.npz of `polygrain smooth`"), np.load(file, allow_pickle=False) as arrays:
        return ClusterWhitening().of(arrays["mean"], arrays["projection"])


def seed_of(random_state: Any) -> int:
    """A whole number as it is; one that is drawn from a generator, or at random for None."""
    is_whole = isinstance(random_state, int | np.integer)
    return int(random_state) if is_whole else int(check_random_state(random_state).randint(2**31))


def learnt(rows: Rows, alike: int | None, labels: np.ndarray | None, sample: int, seed: int) -> Affine:
    """The layer of rows of unit length, by their clusters or by those found inside."""
    n, dim = rows.shape
    basis = basis_of(rows, np.zeros(n, np.int64))
    if basis is None:
        return Affine(np.zeros(dim, np.float32), np.eye(dim, dtype=np.float32))
    if labels is not None:
        return closed_form(basis, [within_clusters(Turned(rows, basis), labels)], None)
    drawn = np.asarray(rows[draw_cells(rows, sample, seed)] if n > sample else rows[:])
    least = MORE if alike is not None and alike < FEW else LEAST
    return closed_form(basis, scatters(basis, drawn, seed), None, least)


def scatters(basis: Basis, rows: Float32[np.ndarray, "row dim"], seed: int) -> list[Scatter]:
    """The scatter of the rows within clusters of each size that so many rows allow."""
    turned = basis.turn(rows)
    return [within_clusters(turned, labels) for labels in clusters_of(half_whitened(basis, turned), seed)]


def half_whitened(basis: Basis, turned: Float[np.ndarray, "row axis"]) -> Float32[np.ndarray, "row clustered"]:
    """Rows along the axes of the basis, as they are clustered."""
    centred = turned[:, :CLUSTERED] - basis.mean @ basis.axes[:, :CLUSTERED]
    return unit_rows(centred * basis.variances[:CLUSTERED] ** -0.25).astype(np.float32)


def clusters_of(rows: Float32[np.ndarray, "row axis"], seed: int) -> list[Int64[np.ndarray, " row"]]:
    """The clusters of each size, two at least; fewer where rows are equal, none where there are too few rows."""
    n, distinct = len(rows), len(np.unique(rows, axis=0))
    wanted = [min(n // size, distinct) for size in SIZES if n // size >= 2]
    if not wanted:
        return []
    seeds = seed_order(rows, wanted[0], seed)
    return [lloyd(rows, rows[seeds.order[:k]], nearest_seeds(seeds.records, k, n), ITERATIONS).labels for k in wanted]
