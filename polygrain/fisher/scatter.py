"""The scatter within clusters: which directions do not matter at one granularity.

S = sum over rows of (x - mean of its cluster)(x - mean of its cluster)' / (rows - clusters), and how far it has to be
shrunk, by Ledoit and Wolf ("A well-conditioned estimator for large-dimensional covariance matrices", 2004).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from polygrain.compute.blocks import Rows, blocks_within

# Values that are read at once, in float64.
BLOCK_VALUES = 2**22


@dataclass(frozen=True)
class Scatter:
    """`within` has the scatter for each degree of freedom, of which there are `degrees`: rows minus clusters.

    `shrinkage`: the share of a multiple of the identity that comes nearest to the true scatter.
    """

    within: Float[np.ndarray, "axis axis"]
    shrinkage: float
    degrees: int


def within_clusters(rows: Rows, labels: Int[np.ndarray, " row"]) -> Scatter:
    """The scatter of rows `row axis` within their clusters; clusters of one row say nothing.

    Without any other, the scatter is zero, and all of it is shrunk.
    """
    (n, width), (_, owners, sizes) = rows.shape, np.unique(labels, return_inverse=True, return_counts=True)
    degrees, shared = n - len(sizes), int(sizes[sizes > 1].sum())
    if not degrees:
        return Scatter(np.zeros((width, width)), 1.0, 0)

    def read() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return ((owners[part], np.array(rows[part], np.float64)) for part in blocks_within(n, width, BLOCK_VALUES))

    sums = torch.zeros((len(sizes), width), dtype=torch.float64)
    for groups, block in read():
        sums.index_add_(0, torch.from_numpy(groups), torch.from_numpy(block))
    means = sums.numpy() / sizes[:, None]
    # Rows of small clusters lie nearer to the cluster's mean than to the true one.
    growth = sizes / np.maximum(sizes - 1, 1)
    within, grown, fourth = np.zeros((width, width)), np.zeros((width, width)), 0.0
    for groups, block in read():
        residuals, weights = block - means[groups], growth[groups]
        within += residuals.T @ residuals
        grown += (residuals * weights[:, None]).T @ residuals
        fourth += float(np.square(weights * np.square(residuals).sum(1)).sum())
    # The formula counts degrees of freedom in place of rows.
    share = ledoit_wolf(grown / shared, fourth, shared) * shared / degrees
    return Scatter(within / degrees, float(np.clip(share, 1 / (1 + degrees), 1)), degrees)


def ledoit_wolf(covariance: Float[np.ndarray, "axis axis"], fourth: float, count: int) -> float:
    """The shrinkage of a covariance of `count` rows; `fourth` is the sum of their |x|^4."""
    width, squares = len(covariance), np.square(covariance).sum()
    distance = squares - np.trace(covariance) ** 2 / width
    error = (fourth / count - squares) / count
    return float(min(error / distance, 1.0)) if distance > 1e-12 * squares else 0.0


def average(scatters: Sequence[Scatter]) -> Scatter:
    """The mean over granularities, all alike; those without a degree of freedom are left out, unless all are."""
    known = [one for one in scatters if one.degrees] or [*scatters]
    within = np.mean([one.within for one in known], 0)
    shrinkage, degrees = np.mean([(one.shrinkage, one.degrees) for one in known], 0)
    return Scatter(within, float(shrinkage), round(degrees))


def of_equal_size(first: Scatter, second: Scatter) -> Scatter:
    """The second scaled to the trace of the first; as it is where one of them is zero."""
    traces = np.trace(first.within), np.trace(second.within)
    scale = traces[0] / traces[1] if min(traces) > 0 else 1.0
    return Scatter(second.within * scale, second.shrinkage, second.degrees)
