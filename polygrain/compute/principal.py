"""Principal components: the orthogonal axes along which rows vary most, strongest first."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float

from polygrain.compute import processes
from polygrain.compute.blocks import Rows, blocks_within
from polygrain.compute.distributed import dealt_blocks, share_of

# Values that are centred at once, in float64.
CELLS = 2**22


Solver = Literal["blockwise", "scikit-learn"]


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
    """How many components rows `n d` can have: centred, they span one dimension less than there are rows."""
    return min(x.shape[0] - 1, x.shape[1])


def principal_components(x: Rows, components: int, solver: Solver = "blockwise") -> Principal:
    """The `components` axes of largest variance, exactly; at most `largest` are allowed.

    `blockwise` sums in float64, never copies all rows, and computes only the axes asked for. An axis along which
    nothing but rounding is left becomes zero, and so does its energy. Several processes share the work; each can read
    all rows, or they are `Distributed`. `scikit-learn` is its `PCA` in the precision of the rows: quicker for a few
    thousand of them, at the cost of a copy.

    ValueError for another number of components.
    """
    if not 1 <= components <= largest(x):
        raise ValueError(
            f"{components} principal components of {x.shape[0]} rows with {x.shape[1]} dimensions; allowed is 1 to "
            f"{largest(x)}: keep fewer components or fit on more rows"
        )
    return blockwise(x, components) if solver == "blockwise" else by_scikit_learn(x, components)


def mean_of(x: Rows) -> Float[np.ndarray, " dim"]:
    """The mean row, summed in float64 in the order of the rows."""
    n, d = x.shape
    total, (mine, held) = torch.zeros(d, dtype=torch.float64), share_of(x)

    def add(total: torch.Tensor) -> None:
        for part in blocks_within(mine, d, CELLS):
            block = held[part]
            total[:] = torch.from_numpy(np.concatenate([total.numpy()[None], block]).sum(0))

    processes.in_turn(total, add)
    return processes.from_last(total).numpy() / n


def blockwise(x: Rows, components: int) -> Principal:
    """From the products of the dimensions or, where there are fewer rows than dimensions, from those of the rows."""
    n, d = x.shape
    wide = d > n
    x = x[:] if wide else x
    mean = mean_of(x)

    def products_of(block: np.ndarray) -> np.ndarray:
        return block @ block.T

    if wide:
        found = processes.dealt(blocks_within(d, n, CELLS), lambda part: products_of(x[:, part] - mean[part]))
    else:
        found = dealt_blocks(x, blocks_within(n, d, CELLS), lambda block: products_of((block - mean).T))
    products = np.zeros((n, n) if wide else (d, d))
    for block in found:
        products += block
    # The first process has the sum of all, in their order.
    products = np.frombuffer(processes.from_first(products.tobytes())).reshape(products.shape).copy()
    total, last = np.trace(products), len(products) - 1
    squares = total / n + mean @ mean
    energies, axes = scipy.linalg.eigh(products, subset_by_index=(last - components + 1, last), overwrite_a=True)
    energies, axes = energies[::-1], axes[:, ::-1]
    # Rows come in float32, whatever their type is: what is smaller than that rounding is not variance.
    floor = n * np.square(np.finfo(np.float32).eps) * max(squares, energies[0])
    varied = energies > floor
    energies, axes = np.where(varied, energies, 0), np.where(varied, axes, 0)
    if wide:
        # An eigenvector u of the products of the rows belongs to the axis X'u / |X'u|, with X the centred rows.
        lengths = np.sqrt(np.where(varied, energies, 1))
        axes = (x.T.astype(np.float64) @ axes - np.outer(mean, axes.sum(0))) / lengths
    # An axis has no sign of its own: its largest entry is made positive.
    axes = axes * np.where(np.take_along_axis(axes, np.abs(axes).argmax(0)[None], 0) < 0, -1, 1)
    return Principal(mean, axes, energies, energies / total if total > 0 else energies)


def by_scikit_learn(x: Float[np.ndarray, "row dim"], components: int) -> Principal:
    from sklearn.decomposition import PCA  # takes a second to import

    # Both are exact; which is quicker depends on the longer side.
    pca = PCA(components, svd_solver="covariance_eigh" if len(x) > x.shape[1] else "full").fit(x)
    energies = pca.explained_variance_ * (len(x) - 1)
    return Principal(pca.mean_, pca.components_.T, energies, pca.explained_variance_ratio_)
