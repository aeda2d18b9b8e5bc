"""PCA-whitening: centred, turned to the principal axes, each scaled to unit variance; then unit length."""

import logging
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float32
from torch import Tensor

from stages.core.compute.blocks import blocks_within
from stages.core.compute.vectors import as_vectors

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Whitening:
    """(x - mean) @ projection has mean 0 and, on the features it was fitted to, unit variance in each column."""

    mean: Float32[np.ndarray, " dim"]
    projection: Float32[np.ndarray, "dim component"]


def largest(features: np.ndarray | Tensor) -> tuple[int, int]:
    """What limits the number of components: n - 1 and the dimension d."""
    return features.shape[0] - 1, features.shape[1]


def fit(features: np.ndarray | Tensor, dim: int) -> Whitening:
    """The whitening onto the `dim` axes of largest variance, as scikit-learn's `PCA(whiten=True)` up to signs.

    From the covariance or, with fewer rows than dimensions, from the products of the rows: only the axes asked for are
    computed. Axes without variance (fewer independent features than `dim`) give zeros instead of amplified rounding,
    and a warning. ValueError for NaN, for dim outside 1 to min(n - 1, d), and for features that are all equal.
    """
    x = as_vectors(features).cpu().numpy()
    if not 1 <= dim <= min(largest(x)):
        raise ValueError(
            f"dim = {dim} from {x.shape[0]} features of {x.shape[1]} dimensions; allowed is 1 to "
            f"{min(largest(x))}: keep fewer dimensions or fit on more features"
        )
    n, d = x.shape
    mean = x.mean(0, dtype=np.float64)
    wide = d > n
    products = np.zeros((n, n) if wide else (d, d))
    for part in blocks_within(d if wide else n, n if wide else d, 2**22):
        block = x[:, part] - mean[part] if wide else (x[part] - mean).T
        products += block @ block.T
    last = len(products) - 1
    energies, axes = scipy.linalg.eigh(products, subset_by_index=(last - dim + 1, last), overwrite_a=True)
    energies, axes = energies[::-1], axes[:, ::-1]
    # The features came in float32: what is smaller than their own rounding is not variance.
    floor = n * np.square(np.finfo(np.float32).eps) * max(np.square(x, dtype=np.float64).sum() / n, energies[0])
    ranked = energies > floor
    if not ranked.any():
        raise ValueError(f"all {n} features are equal; whitening needs features that vary: fit on others")
    if not ranked.all():
        log.warning("whitening: the %d features span %d of %d dimensions; the others are zero", n, ranked.sum(), dim)
    energies, axes = np.where(ranked, energies, np.inf), np.where(ranked, axes, 0)
    if wide:
        axes = (x.T.astype(np.float64) @ axes - np.outer(mean, axes.sum(0))) / np.sqrt(energies)
    # An axis has no sign of its own: its largest entry is made positive.
    axes = axes * np.where(np.take_along_axis(axes, np.abs(axes).argmax(0)[None], 0) < 0, -1, 1)
    return Whitening(mean.astype(np.float32), (axes * np.sqrt((n - 1) / energies)).astype(np.float32))


def apply(whitening: Whitening, features: np.ndarray | Tensor) -> Float32[np.ndarray, "n component"]:
    """The whitened features, of unit length (zero where nothing is left)."""
    x = as_vectors(features).cpu().numpy()
    if x.shape[1] != len(whitening.mean):
        raise ValueError(f"features of {x.shape[1]} dimensions, the whitening was fitted on {len(whitening.mean)}")
    whitened = (x - whitening.mean) @ whitening.projection
    lengths = np.linalg.norm(whitened, axis=1, keepdims=True)
    return whitened / np.where(lengths > 0, lengths, 1)
