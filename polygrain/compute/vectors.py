"""Checked rows of features; sums over groups of rows; distances of pairs of rows."""

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from polygrain.compute import device, processes
from polygrain.compute.blocks import blocks, blocks_within

# The squares of larger values overflow float32.
LARGEST = 1e16
# Values of pairs compared at once: they stay in the cache of the cores.
PAIRS = 2**17
# Values summed at once, and dimensions: as float64 they stay in the cache of a core.
SUMMED, BLOCK_COLUMNS = 2**18, 32


def as_vectors(rows: np.ndarray | Tensor, name: str = "features") -> Float32[Tensor, "n d"]:
    """The rows as a float32 tensor on the device where they are.

    ValueError unless they are `n d`, not empty, finite, and at most `LARGEST` in size.
    """
    if not isinstance(rows, Tensor):
        # Torch takes no numbers of another byte order, no negative strides, no memory that must not be written to.
        with np.errstate(over="ignore"):  # infinity is named below
            rows = torch.from_numpy(np.require(rows, np.float32, ["C", "W"]))
    vectors = rows.detach().float()
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ValueError(f"{name} of shape {tuple(rows.shape)}; needed is a row per image (n, d), n and d at least 1")
    low, high = torch.aminmax(vectors)
    if not (low.item() >= -LARGEST and high.item() <= LARGEST):
        worst = np.nonzero(~(vectors.abs() <= LARGEST).all(1).cpu().numpy())[0]
        row = vectors[worst[0]]
        value = row[~(row.abs() <= LARGEST)][0].item()
        raise ValueError(
            f"{name} hold {value} in row {worst[0]} ({len(worst)} such rows); only finite values below {LARGEST:g} are "
            "allowed: remove these rows or find out why they were computed so"
        )
    return vectors.contiguous()


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """The rows, each of unit length; those of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def check_count(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} clusters of {n} points; allowed is 1 to {n}: ask for fewer clusters or add points")


def group_sums(x: Float[Tensor, "n d"], groups: Int64[Tensor, " n"], count: int) -> Float64[Tensor, "count d"]:
    """The sum in float64 over the rows of each group 0..count-1, of the rows of all processes."""
    sums = torch.zeros((count, x.shape[1]), dtype=torch.float64, device=x.device)
    for columns in blocks(x.shape[1], device.roomy(BLOCK_COLUMNS, x.device, 256)):
        total, values = torch.zeros_like(sums[:, columns]), x[:, columns]
        for part in blocks_within(len(x), values.shape[1], device.roomy(SUMMED, x.device, 256)):
            total.index_add_(0, groups[part], values[part].double())
        sums[:, columns] = total
    processes.add_up([sums])
    return sums


def group_sizes(groups: Int64[Tensor, " row"], count: int) -> Int64[Tensor, " count"]:
    """The size of each group 0..count-1, in all processes together."""
    sizes = torch.bincount(groups, minlength=count)
    processes.add_up([sizes])
    return sizes


def squared_distances(
    a: Float32[Tensor, "n d"], i: Int64[Tensor, " pair"], b: Float32[Tensor, "m d"], j: Int64[Tensor, " pair"]
) -> Float64[Tensor, " pair"]:
    """|a_i - b_j|^2 of each pair from the differences: zero exactly where the rows are equal."""
    out = torch.empty(len(i), dtype=torch.float64, device=a.device)
    for part in blocks_within(len(i), a.shape[1], device.roomy(PAIRS, a.device, 256)):
        # `index_select` gathers rows several times faster than an index does.
        differences = a.index_select(0, i[part]).sub_(b.index_select(0, j[part]))
        out[part] = differences.double().square_().sum(1)
    return out
