"""Principal components: the orthogonal axes along which rows vary most, strongest first."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float

from polygrain.compute.blocks import Rows, blocks_within

# Values that are centred at once, in float64.
BLOCK_VALUES = 2**22


@dataclass(frozen=True)
class Principal:
    """(x - mean) @ axes is x along each axis, which is a column of unit length; its largest entry is positive.

    `energies` holds the sum of squares along each axis, `shares` its part of the sum over all axes that there are.
    """

    mean: Float[np.ndarray, " dim"]
    axes: Float[np.ndarray, "dim component"]
    energies: Float[np.ndarray, " component"]
    shares: Float[np.ndarray, " component"]


def largest(x: Rows) -> int:
    """The most components that rows `n d` can have: centred, n rows span n - 1 dimensions."""
    return min(x.shape[0] - 1, x.shape[1])


def principal_components(x: Rows, components: int) -> Principal:
    """The `components` axes of largest variance, exactly; at most `largest` are allowed.

    Summed in float64, block by block: from the products of the dimensions or, where there are fewer rows than
    dimensions, from those of the rows. An axis along which nothing but rounding is left becomes zero, and so does its
    energy. ValueError for another number of components.
    """
    n, d = x.shape
    if not 1 <= components <= largest(x):
        raise ValueError(
            f"{components} principal components of {n} rows with {d} dimensions; allowed is 1 to {largest(x)}: keep "
            "fewer components or fit on more rows"
        )
    wide = d > n
    whole = np.asarray(x[:]) if wide else np.empty((0, d))
    mean = mean_of(whole if wide else x)

    products = np.zeros((n, n) if wide else (d, d))
    for part in blocks_within(d, n, BLOCK_VALUES) if wide else blocks_within(n, d, BLOCK_VALUES):
        block = whole[:, part] - mean[part] if wide else (x[part] - mean).T
        products += block @ block.T
    total, last = np.trace(products), len(products) - 1
    squares = total / n + mean @ mean
    energies, axes = scipy.linalg.eigh(products, subset_by_index=(last - components + 1, last), overwrite_a=True)
    energies, axes = energies[::-1], axes[:, ::-1]
    # Rows were float32 at some point: variance below its rounding is none.
    floor = n * np.square(np.finfo(np.float32).eps) * max(squares, energies[0])
    varied = energies > floor
    energies, axes = np.where(varied, energies, 0), np.where(varied, axes, 0)
    if wide:
        # An eigenvector u of the products of the rows belongs to the axis X'u / |X'u|, with X the centred rows.
        lengths = np.sqrt(np.where(varied, energies, 1))
        axes = (whole.T.astype(np.float64) @ axes - np.outer(mean, axes.sum(0))) / lengths
    # An axis has no sign of its own: its largest entry is made positive.
    axes = axes * np.where(np.take_along_axis(axes, np.abs(axes).argmax(0)[None], 0) < 0, -1, 1)
    return Principal(mean, axes, energies, energies / total if total > 0 else energies)


def mean_of(x: Rows) -> Float[np.ndarray, " dim"]:
    """The mean row, summed in float64 in the order of the rows."""
    n, d = x.shape
    total = np.zeros(d)
    for part in blocks_within(n, d, BLOCK_VALUES):
        total = np.concatenate([total[None], x[part]]).sum(0)
    return total / n
