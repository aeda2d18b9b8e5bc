"""PCA-whitening: centred, turned to the principal axes, each scaled to unit variance; then unit length.

Half whitening scales each axis half as far, by the fourth root of its variance: what varies most keeps more weight. A
quarter scales a quarter as far, and turned features are not scaled at all. The axes stand in the order of their
variance, so the first numbers of a whitened feature are its whitening to fewer dimensions.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32
from torch import Tensor

from polygrain.compute import principal
from polygrain.compute.blocks import Rows, blocks_within
from polygrain.compute.vectors import as_vectors, unit_rows

log = logging.getLogger(__name__)

Kind = Literal["turned", "quarter", "half", "full"]
BLOCK_VALUES = 2**24  # values that are turned at once: 200 MB, most of it as float64
# Of an axis's variance, by which it is divided.
POWERS: dict[Kind, float] = {"turned": 0.0, "quarter": 0.125, "half": 0.25, "full": 0.5}


@dataclass(frozen=True)
class Affine:
    """The map (x - mean) @ projection. A whitening has uncorrelated columns of mean 0 on the features it was fitted to.

    Each has unit variance; half-whitened the square root of its variance before, turned the same variance.
    """

    mean: Float32[np.ndarray, " dim"]
    projection: Float32[np.ndarray, "dim component"]

    @property
    def bias(self) -> Float32[np.ndarray, " component"]:
        """The bias beside `projection`, which makes the map a linear layer."""
        return (-self.mean.astype(np.float64) @ self.projection).astype(np.float32)


def checked(features: Rows) -> Rows:
    """The features as float32 rows; those of a store are checked when they are read."""
    return as_vectors(features).cpu().numpy() if isinstance(features, np.ndarray | Tensor) else features


def fit(features: Rows, dim: int, kind: Kind = "full") -> Affine:
    """The whitening onto the `dim` axes of largest variance; the full one as scikit-learn's `PCA(whiten=True)`.

    It has fewer dimensions where the features allow fewer. Axes without variance give zeros instead of amplified
    rounding, and a warning. ValueError for NaN, and for features that are all equal.
    """
    fitted = fit_if_varied(features, dim, kind)
    if fitted is None:
        raise ValueError(
            f"all {features.shape[0]} features are equal; whitening needs features that vary: fit on others"
        )
    return fitted


def fit_if_varied(features: Rows, dim: int, kind: Kind = "full") -> Affine | None:
    """`fit`, but None for features that are all equal, up to rounding."""
    return next(iter(fit_all(features, [dim], [kind]).values()), None)


def fit_all(features: Rows, dims: Sequence[int], kinds: Sequence[Kind]) -> dict[tuple[Kind, int], Affine]:
    """`fit` of every kind to all of these dimensions, or as many as the features allow, in one decomposition.

    Nothing for features that are all equal.
    """
    x = checked(features)
    widths = sorted({min(dim, principal.largest(x)) for dim in dims if kinds} - {0})
    components = principal.principal_components(x, widths[-1]) if widths else None
    if components is None or components.energies[0] == 0:
        return {}
    return {(kind, dim): onto(components, x.shape[0], dim, kind) for dim in widths for kind in kinds}


def onto(components: principal.Principal, count: int, dim: int, kind: Kind) -> Affine:
    """The whitening onto the first `dim` of the principal axes of `count` features."""
    energies = components.energies[:dim]
    varied = energies > 0
    if not varied.all():
        log.warning(
            "PCA: %d vectors vary along %d axes only; the rest of their %d numbers are zero", count, varied.sum(), dim
        )
    scales = ((count - 1) / np.where(varied, energies, np.inf)) ** POWERS[kind]
    return Affine(components.mean.astype(np.float32), (components.axes[:, :dim] * scales).astype(np.float32))


def to_length(features: Rows, dim: int) -> Float32[np.ndarray, "width dim"]:
    """The map of features onto their first `dim` principal axes; zeros are added where they have fewer numbers."""
    fitted = fit_if_varied(features, dim, "turned") if dim < features.shape[1] else None
    axes = np.eye(features.shape[1], dtype=np.float32) if fitted is None else fitted.projection
    return axes @ np.eye(axes.shape[1], dim, dtype=np.float32)


def apply(whitening: Affine, features: np.ndarray | Tensor) -> Float32[np.ndarray, "n component"]:
    """The whitened features, of unit length (zero where nothing is left)."""
    x = as_vectors(features).cpu().numpy()
    if x.shape[1] != len(whitening.mean):
        raise ValueError(f"features of {x.shape[1]} dimensions, the whitening was fitted on {len(whitening.mean)}")
    result = np.empty((len(x), whitening.projection.shape[1]), np.float32)
    for part in blocks_within(len(x), x.shape[1], BLOCK_VALUES):
        result[part] = (x[part] - whitening.mean).astype(float) @ whitening.projection.astype(float)
    return unit_rows(result)
