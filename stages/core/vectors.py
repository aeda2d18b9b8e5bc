"""Checked rows of features, and their exact nearest centroids."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

# The most distances held at once: 64 MiB of float32.
CELLS = 2**24
LARGEST = 1e16
# Values of pairs worked on at once: they stay in the cache of the cores.
PAIRS = 2**17
# Values gathered at once to be summed.
GATHERED = 2**21


def as_vectors(rows: np.ndarray | Tensor, name: str = "features") -> Float32[Tensor, "n d"]:
    """The rows as a float32 tensor where they are; ValueError unless they are `n d`, not empty, finite and below 1e16.

    Beyond that size squares overflow float32.
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


def check_count(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} clusters of {n} points; allowed is 1 to {n}: ask for fewer clusters or add points")


def chunks(n: int, width: int, cells: int) -> Iterator[slice]:
    """Slices of n rows that hold at most `cells` values of `width` columns, one row at least."""
    step = max(1, cells // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def group_sums(
    x: Float32[Tensor, "n d"], rows: Int64[Tensor, " row"], groups: Int64[Tensor, " row"], count: int
) -> Float64[Tensor, "count d"]:
    """The sum of x[rows] over the rows of each group 0..count-1, in float64 and in the order of the rows."""
    sums = torch.zeros((count, x.shape[1]), dtype=torch.float64, device=x.device)
    for part in chunks(len(rows), x.shape[1], GATHERED):
        sums.index_add_(0, groups[part], x.index_select(0, rows[part]).double())
    return sums


def squared_distances(
    a: Float32[Tensor, "n d"], i: Int64[Tensor, " pair"], b: Float32[Tensor, "m d"], j: Int64[Tensor, " pair"]
) -> Float64[Tensor, " pair"]:
    """|a_i - b_j|^2 of each pair from the differences: zero exactly where the rows are equal."""
    out = torch.empty(len(i), dtype=torch.float64, device=a.device)
    for part in chunks(len(i), a.shape[1], PAIRS):
        # `index_select` gathers rows several times faster than an index does.
        differences = a.index_select(0, i[part]).sub_(b.index_select(0, j[part]))
        out[part] = differences.double().square_().sum(1)
    return out


def inner_products(
    a: Float32[Tensor, "n d"], i: Int64[Tensor, " pair"], b: Float32[Tensor, "m d"], j: Int64[Tensor, " pair"]
) -> Float64[Tensor, " pair"]:
    """a_i · b_j of each pair, its products exact and summed in float64."""
    out = torch.empty(len(i), dtype=torch.float64, device=a.device)
    for part in chunks(len(i), a.shape[1], PAIRS):
        out[part] = a.index_select(0, i[part]).double().mul_(b.index_select(0, j[part])).sum(1)
    return out


@dataclass(frozen=True)
class Nearest:
    """Of each row: position and squared distance of the nearest centroid, and lower bounds for it and for all others.

    Where no centroid is within the limit asked for, position is -1 and the distance infinite; the bounds still hold.
    """

    positions: Int64[Tensor, " n"]
    distances: Float64[Tensor, " n"]
    first: Float64[Tensor, " n"]
    second: Float64[Tensor, " n"]


def nearest_centroids(
    x: Float32[Tensor, "n d"],
    centroids: Float32[Tensor, "k d"],
    rows: Int64[Tensor, " row"],
    *,
    limits: Float64[Tensor, " row"] | None = None,
    skipped: Int64[Tensor, " row"] | None = None,
    cells: int = CELLS,
) -> Nearest:
    """The exact nearest centroid of x[rows], ties to the lowest position; `skipped` is a position to leave out, or -1.

    Products in float32 sort out all but the centroids within their rounding error; distances from differences decide
    among these. So the answer depends neither on the blocks nor on the device nor on the number of threads.
    """
    n, device = len(rows), x.device
    positions = torch.full((n,), -1, device=device)
    distances = torch.full((n,), torch.inf, dtype=torch.float64, device=device)
    first, second = distances.clone(), distances.clone()
    # Near the centroids' mean the products are smallest, and so is what rounding may hide.
    shift = centroids.double().mean(0).float()
    moved = centroids - shift
    norms = moved.double().square().sum(1)
    # Rows stay in the processor's cache: a sixteenth of the cells for them, the rest for products.
    for part in chunks(n, max(len(centroids), 16 * x.shape[1]), cells):
        block = x[rows[part]] - shift
        own = block.double().square().sum(1)
        # A float32 sum of d products errs by at most d/2^24 |x||c| in any order of summation, plus a few roundings,
        # plus what falls below the smallest normal number.
        error = (x.shape[1] / 2 + 8) * 2**-24 * (own.sqrt() + norms.max().sqrt()) ** 2 + x.shape[1] * 2**-126
        products = torch.addmm(norms.float(), block, moved.T, alpha=-2)
        if skipped is not None:
            inside = torch.nonzero(skipped[part] >= 0)[:, 0]
            products[inside, skipped[part][inside]] = torch.inf
        best = products.argmin(1)
        least = products.gather(1, best[:, None])[:, 0]
        products.scatter_(1, best[:, None], torch.inf)
        runner_up = products.amin(1).double()
        reach = least.double() + 2 * error
        near = torch.ones_like(best, dtype=torch.bool)
        if limits is not None:
            near = least.double() + own - error <= limits[part]
        near &= torch.isfinite(least)
        doubtful = near & (runner_up <= reach)
        first[part] = least.double() + own - error
        second[part] = torch.where(doubtful, least.double(), runner_up) + own - error
        clear = torch.nonzero(near & ~doubtful)[:, 0]
        here = torch.arange(part.start, part.stop, device=device)
        positions[here[clear]] = best[clear]
        distances[here[clear]] = squared_distances(x, rows[part][clear], centroids, best[clear])
        doubt = torch.nonzero(doubtful)[:, 0]
        if len(doubt):
            products.scatter_(1, best[:, None], least[:, None])
            settle = decide(x, centroids, rows[part], doubt, products[doubt] <= reach[doubt, None])
            positions[here[doubt]], distances[here[doubt]] = settle
    return Nearest(positions, distances, first.clamp_min_(0), second.clamp_min_(0))


def decide(
    x: Float32[Tensor, "n d"],
    centroids: Float32[Tensor, "k d"],
    rows: Int64[Tensor, " row"],
    doubt: Int64[Tensor, " some"],
    candidates: Tensor,
) -> tuple[Int64[Tensor, " some"], Float64[Tensor, " some"]]:
    """Nearest candidate and its squared distance for x[rows[doubt]], ties to the lowest position."""
    i, j = torch.nonzero(candidates, as_tuple=True)
    pairs = squared_distances(x, rows[doubt][i], centroids, j)
    least = torch.full((len(doubt),), torch.inf, dtype=torch.float64, device=x.device).scatter_reduce_(
        0, i, pairs, "amin"
    )
    winners = pairs == least[i]
    lowest = torch.full((len(doubt),), len(centroids), device=x.device)
    return lowest.scatter_reduce_(0, i[winners], j[winners], "amin"), least


def assign(
    features: np.ndarray | Tensor, centroids: np.ndarray | Tensor, *, cells: int = CELLS
) -> Int64[np.ndarray, " n"]:
    """The nearest centroid of every point, ties to the lowest index."""
    x, c = as_pair(features, centroids)
    return nearest_centroids(x, c, torch.arange(len(x), device=x.device), cells=cells).positions.cpu().numpy()


def as_pair(features: np.ndarray | Tensor, centroids: np.ndarray | Tensor) -> tuple[Tensor, Tensor]:
    x = as_vectors(features)
    c = as_vectors(centroids, "centroids").to(x.device)
    if c.shape[1] != x.shape[1]:
        raise ValueError(f"centroids have {c.shape[1]} dimensions and features {x.shape[1]}; they must be the same")
    check_count(len(c), len(x))
    return x, c
