"""Fisher's discriminant of total against within scatter, as one linear layer behind an encoder.

S_t u = lambda R u with R = (1 - rho) W + rho mean(diag W) I, where W is the scatter within clusters and rho its
shrinkage (Fisher, "The use of multiple measurements in taxonomic problems", 1936). psi = lambda - 1 is the scatter
between over that within. Clusters understate the scatter within, so psi' = psi / (1 + c psi). The layer is
u sqrt(psi' / (1 + psi')), with which the inner product is that of probabilistic linear discriminant analysis (Ioffe,
2006).
"""

import numpy as np
import scipy.linalg
from jaxtyping import Float, Float32

from polygrain.fisher.scatter import Scatter

# The ratio of scatter between clusters to scatter within saturates at 1 / ADDED; MOST axes are kept.
ADDED, MOST = 0.05, 256
LEAST = 1e-6  # of psi: axes below tell nothing apart


def axes(
    total: Float[np.ndarray, "axis axis"], scatter: Scatter, least: float = 0.0, most: int = MOST
) -> Float32[np.ndarray, "axis component"]:
    """The layer, the axes that tell most apart first; the scatter is shrunk by its own share, or by the `least`.

    ValueError where the rows do not vary.
    """
    variance = np.trace(scatter.within) / len(total)
    if np.trace(total) <= 0:
        raise ValueError("all rows are equal: there is nothing to tell apart")
    if variance <= 0:
        # No cluster has two rows: no direction is known to matter less.
        shrunk = np.eye(len(total)) * np.trace(total) / len(total)
    else:
        share = min(1.0, max(scatter.shrinkage, least))
        shrunk = (1 - share) * scatter.within + share * variance * np.eye(len(total))
    ratios, directions = (part[..., ::-1] for part in scipy.linalg.eigh(total, shrunk))
    between = np.maximum(ratios - 1, 0)
    grown = 1 + ADDED * between
    between /= grown
    weights, told = np.sqrt(between / (1 + between) / grown), between > LEAST
    if not told.any():
        # Where no axis tells anything apart, no axis is less than another.
        weights, told = np.ones(len(ratios)), ratios > LEAST
    result = (directions * weights)[:, told][:, :most]
    # An axis has no sign of its own: its largest entry is made positive.
    return (result * np.sign(np.take_along_axis(result, np.abs(result).argmax(0)[None], 0))).astype(np.float32)
