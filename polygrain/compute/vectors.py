"""Checked rows of features, and what is summed over pairs of them."""

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from polygrain.compute import processes
from polygrain.compute.blocks import blocks, blocks_within

# The most distances held at once: 64 MiB of float32.
CELLS = 2**24
# The squares of larger values overflow float32.
LARGEST = 1e16
# Values of pairs worked on at once: they stay in the cache of the cores.
PAIRS = 2**17
# Values gathered at once to be summed: they too, as float64, stay in the cache of a core.
GATHERED = 2**18
# Fewer dimensions of a row are slow to gather.
COLUMNS = 32


def as_vectors(rows: np.ndarray | Tensor, name: str = "features") -> Float32[Tensor, "n d"]:
    """The rows as a float32 tensor on the device where they are.

    ValueError unless they are `n d`, not empty, finite, and at most `LARGEST` in size.
    """
    if not isinstance(rows, Tensor):
        rows = np.asarray(rows)
        # Torch warns of memory that it could write to but must not, such as that of a store.
        rows = torch.from_numpy(rows if rows.flags.writeable else rows.copy())
    vectors = rows.detach().float()
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ValueError(f"{name} of shape {tuple(rows.shape)}; needed is a row per image (n, d), n and d at least 1")
    low, high = torch.aminmax(vectors)
    if not (low.item() >= -LARGEST and high.item() <= LARGEST):
        worst = np.nonzero(~(vectors.abs() <= LARGEST).all(1).cpu().numpy())[0]
        met = vectors[worst[0]]
        met = met[~(met.abs() <= LARGEST)][0].item()
        raise ValueError(
            f"{name} hold {met} in row {worst[0]} ({len(worst)} such rows); only finite values below {LARGEST:g} are "
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


def group_sums(
    x: Float[Tensor, "n d"], rows: Int64[Tensor, " row"], groups: Int64[Tensor, " row"], count: int
) -> Float64[Tensor, "count d"]:
    """The sum of x[rows] over the rows of each group 0..count-1, in float64, of the rows of all processes."""
    sums = torch.zeros((count, x.shape[1]), dtype=torch.float64, device=x.device)
    for columns in blocks(x.shape[1], COLUMNS):
        total, values = torch.zeros_like(sums[:, columns]), x[:, columns]
        for part in blocks_within(len(rows), values.shape[1], GATHERED):
            total.index_add_(0, groups[part], values.index_select(0, rows[part]).double())
        sums[:, columns] = total
    processes.add_up([sums])
    return sums


def group_sizes(groups: Int64[Tensor, " row"], count: int) -> Int64[Tensor, " count"]:
    """How many rows each group 0..count-1 has, in all processes together."""
    sizes = torch.bincount(groups, minlength=count)
    processes.add_up([sizes])
    return sizes


def squared_distances(
    a: Float32[Tensor, "n d"], i: Int64[Tensor, " pair"], b: Float32[Tensor, "m d"], j: Int64[Tensor, " pair"]
) -> Float64[Tensor, " pair"]:
    """|a_i - b_j|^2 of each pair from the differences: zero exactly where the rows are equal."""
    out = torch.empty(len(i), dtype=torch.float64, device=a.device)
    for part in blocks_within(len(i), a.shape[1], PAIRS):
        # `index_select` gathers rows several times faster than an index does.
        differences = a.index_select(0, i[part]).sub_(b.index_select(0, j[part]))
        out[part] = differences.double().square_().sum(1)
    return out


def inner_products(
    a: Float32[Tensor, "n d"], i: Int64[Tensor, " pair"], b: Float32[Tensor, "m d"], j: Int64[Tensor, " pair"]
) -> Float64[Tensor, " pair"]:
    """a_i · b_j of each pair; its products are exact, since they are formed and summed in float64."""
    out = torch.empty(len(i), dtype=torch.float64, device=a.device)
    for part in blocks_within(len(i), a.shape[1], PAIRS):
        out[part] = a.index_select(0, i[part]).double().mul_(b.index_select(0, j[part])).sum(1)
    return out
