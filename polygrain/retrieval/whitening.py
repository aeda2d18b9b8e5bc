"""PCA-whitening: centred, turned to the principal axes, each scaled to unit variance; then unit length.

Half whitening scales each axis half as far, by the fourth root of its variance: what varies most keeps more weight.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32
from torch import Tensor

from polygrain.compute import principal
from polygrain.compute.blocks import Rows, blocks, blocks_within
from polygrain.compute.distributed import Distributed
from polygrain.compute.vectors import CELLS, as_vectors, unit_rows

log = logging.getLogger(__name__)

Kind = Literal["half", "full"]
ROWS = 65_536
# Of an axis's variance, by which it is divided.
POWERS: dict[Kind, float] = {"half": 0.25, "full": 0.5}


@dataclass(frozen=True)
class Whitening:
    """(x - mean) @ projection has mean 0 and uncorrelated columns on the features it was fitted to.

    Each of them has unit variance, or half-whitened the square root of what it had.
    """

    mean: Float32[np.ndarray, " dim"]
    projection: Float32[np.ndarray, "dim component"]

    @property
    def bias(self) -> Float32[np.ndarray, " component"]:
        """What is added to x @ projection: the whitening as a linear layer."""
        return (-self.mean.astype(np.float64) @ self.projection).astype(np.float32)


def checked(features: Rows) -> Rows:
    """The features as float32 rows; a store's are read, and then checked, by whoever takes them."""
    return as_vectors(features).cpu().numpy() if isinstance(features, np.ndarray | Tensor) else features


def largest(features: Rows) -> int:
    """The most dimensions to which features can be whitened; 0 where they are all equal, up to rounding."""
    x = checked(features)
    most = principal.largest(x)
    return most if most > 0 and principal.principal_components(x, 1).energies[0] > 0 else 0


def fit(features: Rows, dim: int, kind: Kind = "full") -> Whitening:
    """The whitening onto the `dim` axes of largest variance; the full one as scikit-learn's `PCA(whiten=True)`.

    Axes without variance (fewer independent features than `dim`) give zeros instead of amplified rounding, and a
    warning. ValueError for NaN, for a dim beyond `principal.largest`, and for features that are all equal.
    """
    x = checked(features)
    return onto(principal.principal_components(x, dim), x.shape[0], dim, kind)


def fit_all(features: Rows, dims: Sequence[int], kinds: Sequence[Kind]) -> dict[tuple[Kind, int], Whitening]:
    """`fit` of every kind to all of these dimensions, or as many as the features allow, in one decomposition.

    Nothing for features that are all equal.
    """
    x = checked(features)
    wanted = sorted({min(dim, principal.largest(x)) for dim in dims if kinds} - {0})
    found = principal.principal_components(x, wanted[-1]) if wanted else None
    if found is None or found.energies[0] == 0:
        return {}
    return {(kind, dim): onto(found, x.shape[0], dim, kind) for dim in wanted for kind in kinds}


def onto(found: principal.Principal, count: int, dim: int, kind: Kind) -> Whitening:
    """The whitening onto the first `dim` of the axes that were found in `count` features."""
    energies = found.energies[:dim]
    varied = energies > 0
    if not varied.any():
        raise ValueError(f"all {count} features are equal; whitening needs features that vary: fit on others")
    if not varied.all():
        log.warning(
            "whitening: the %d features span %d of %d dimensions; the others are zero", count, varied.sum(), dim
        )
    scales = ((count - 1) / np.where(varied, energies, np.inf)) ** POWERS[kind]
    return Whitening(found.mean.astype(np.float32), (found.axes[:, :dim] * scales).astype(np.float32))


def apply(whitening: Whitening, features: np.ndarray | Tensor) -> Float32[np.ndarray, "n component"]:
    """The whitened features, of unit length (zero where nothing is left)."""
    x = as_vectors(features).cpu().numpy()
    if x.shape[1] != len(whitening.mean):
        raise ValueError(f"features of {x.shape[1]} dimensions, the whitening was fitted on {len(whitening.mean)}")
    found = np.empty((len(x), whitening.projection.shape[1]), np.float32)
    # In float64: how a product in float32 rounds a row depends on how many are beside it, and processes share rows.
    for part in blocks(len(x), ROWS):
        found[part] = (x[part] - whitening.mean).astype(float) @ whitening.projection.astype(float)
    return unit_rows(found)


def apply_shared(whitening: Whitening, features: Distributed) -> Distributed:
    """`apply` to rows that several processes share; each has the whitened ones where it has the features.

    How a product is rounded depends on how many rows are beside it, so all process the same blocks: rows that lie with
    another process beside one's own pass by.
    """
    kept = [np.empty((0, whitening.projection.shape[1]), np.float32)]
    for part in blocks_within(*features.shape, CELLS):
        passing = features[part]
        first, last = np.clip([features.own.start, features.own.stop], part.start, part.stop) - part.start
        if first < last:
            kept.append(apply(whitening, passing)[first:last])
    return Distributed(np.concatenate(kept), np.diff(features.edges).tolist())
