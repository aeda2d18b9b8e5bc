"""Exact nearest neighbours through faiss, in blocks of the gallery, which may be larger than memory."""

from typing import Literal

import faiss
import numpy as np
from jaxtyping import Float32, Int64
from torch import Tensor

from polygrain.compute import processes
from polygrain.compute.blocks import Rows, blocks
from polygrain.compute.distributed import share_of
from polygrain.compute.vectors import unit_rows

ROWS = 65536

Metric = Literal["inner_product", "cosine", "l2"]


def read(rows: Rows, start: int, stop: int, metric: Metric, name: str) -> Float32[np.ndarray, "row dim"]:
    """A block of rows as faiss takes them; of unit length for `cosine`, where zero vectors stay zero."""
    block = rows[start:stop]
    if isinstance(block, Tensor):
        block = block.detach().cpu().numpy()
    block = np.ascontiguousarray(block, dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(block).all(1))
    if len(wrong):
        met = block[wrong[0]][~np.isfinite(block[wrong[0]])][0]
        raise ValueError(
            f"{name} hold {met} in row {start + wrong[0]}; only finite values are allowed: remove such rows"
        )
    if metric == "cosine":
        block = unit_rows(block)
    return block


def search(
    queries: Float32[np.ndarray, "query dim"], block: Float32[np.ndarray, "row dim"], k: int, metric: Metric
) -> tuple[Float32[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
    """Costs (lowest is nearest) and positions of the k nearest rows of a block, ties by position.

    Where rows tie for the last place, faiss keeps any of them. Such queries are asked again for more rows, until all
    that tie are there.
    """
    k = min(k, len(block))
    kind, sign = (faiss.METRIC_L2, 1) if metric == "l2" else (faiss.METRIC_INNER_PRODUCT, -1)
    costs, positions = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    rest, width = np.arange(len(queries)), min(k + 1, len(block))
    while len(rest):
        scores, found = faiss.knn(queries[rest], block, width, metric=kind)
        found_costs, found = sort(sign * scores, found)
        costs[rest], positions[rest] = found_costs[:, :k], found[:, :k]
        rest = rest[found_costs[:, k - 1] == found_costs[:, -1]] if width < len(block) else rest[:0]
        width = min(2 * width, len(block))
    return costs, positions


def sort(
    costs: Float32[np.ndarray, "query rank"], positions: Int64[np.ndarray, "query rank"]
) -> tuple[Float32[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
    """Both by cost, then by position."""
    order = np.lexsort((positions, costs), axis=1)
    return np.take_along_axis(costs, order, 1), np.take_along_axis(positions, order, 1)


def nearest(
    queries: Rows,
    gallery: Rows,
    k: int,
    *,
    metric: Metric = "inner_product",
    exclude_self: bool = False,
    rows: int = ROWS,
) -> tuple[Float32[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
    """Scores and indices of each query's k nearest gallery rows, nearest first, ties by index.

    Scores are inner products (of unit vectors for `cosine`), or squared distances for `l2`. With `exclude_self`, query
    i is gallery row i and is left out by its index: other rows that equal it stay. At most `rows` rows are read at
    once. Several processes share the queries; `Distributed` ones are asked by whoever holds them. ValueError for shapes
    that do not fit, values that are not finite, and k outside 1 to what the gallery offers.
    """
    check(queries, gallery, k, metric, exclude_self, rows)
    (mine, held), wanted = share_of(queries), k + exclude_self
    n = mine.stop - mine.start
    costs = np.full((n, wanted), np.inf, np.float32)
    indices = np.full((n, wanted), gallery.shape[0], np.int64)
    for offered in blocks(gallery.shape[0], rows):
        block = read(gallery, offered.start, offered.stop, metric, "gallery")
        for part in blocks(n, rows):
            asked = read(held, mine.start + part.start, mine.start + part.stop, metric, "queries")
            more, positions = search(asked, block, wanted, metric)
            merged = sort(np.hstack([costs[part], more]), np.hstack([indices[part], positions + offered.start]))
            costs[part], indices[part] = (values[:, :wanted] for values in merged)
    if exclude_self:
        # Where many equal rows have pushed the query itself out, the last of the k + 1 goes in its place.
        order = np.argsort(indices == np.arange(mine.start, mine.stop)[:, None], axis=1, kind="stable")[:, :k]
        costs, indices = np.take_along_axis(costs, order, 1), np.take_along_axis(indices, order, 1)
    costs, indices = processes.gather_array(costs), processes.gather_array(indices)
    return costs if metric == "l2" else -costs, indices


def without_self(
    found: Int64[np.ndarray, "query more"], own: Int64[np.ndarray, " query"], k: int
) -> Int64[np.ndarray, "query rank"]:
    """The first k of k + 1 indices without the query's own, or where that is not among them without the last."""
    order = np.argsort(found == own[:, None], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, order, 1)


def check(queries: Rows, gallery: Rows, k: int, metric: Metric, exclude_self: bool, rows: int) -> None:
    q, g = tuple(queries.shape), tuple(gallery.shape)
    if len(q) != 2 or len(g) != 2 or q[1] != g[1] or 0 in q + g:
        raise ValueError(f"queries {q} and gallery {g}; both must be (rows, dim), not empty, with the same dim")
    if exclude_self and q != g:
        raise ValueError(f"{q[0]} queries and {g[0]} gallery rows; to leave self out both must be the same rows")
    if not 1 <= k <= g[0] - exclude_self:
        largest = g[0] - exclude_self
        raise ValueError(f"k = {k} neighbours among {largest} other rows; allowed is 1 to {largest}: ask for fewer")
    if metric not in ("inner_product", "cosine", "l2") or rows < 1:
        raise ValueError(f"metric {metric!r} in blocks of {rows}; allowed are inner_product, cosine, l2 and 1 or more")
