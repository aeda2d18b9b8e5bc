"""Exact nearest neighbours, in blocks of the gallery, which may be larger than memory."""

from functools import cache
from typing import Any, Literal

import faiss
import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from polygrain.compute import device, processes
from polygrain.compute.blocks import Rows, blocks, blocks_within
from polygrain.compute.vectors import unit_rows

BLOCK_ROWS = 65536
# Inner products held at once on a GPU.
PRODUCTS = 2**26
# Cells and neighbours of one search that faiss allows on a GPU.
GPU_MOST = 2048

Metric = Literal["inner_product", "cosine"]


def read(rows: Rows, part: slice, metric: Metric, name: str = "features") -> Float32[np.ndarray, "row dim"]:
    """A block of rows as faiss takes them; of unit length for `cosine`, where zero vectors stay zero."""
    block = rows[part]
    if isinstance(block, Tensor):
        block = block.detach().cpu().numpy()
    block = np.ascontiguousarray(block, dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(block).all(1))
    if len(wrong):
        value = block[wrong[0]][~np.isfinite(block[wrong[0]])][0]
        raise ValueError(
            f"{name} hold {value} in row {part.start + wrong[0]}; only finite values are allowed: remove such rows"
        )
    return unit_rows(block) if metric == "cosine" else block


def search(
    queries: Float32[np.ndarray, "query dim"], block: Float32[np.ndarray, "row dim"], k: int
) -> tuple[Float32[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
    """Inner products and positions of the k nearest rows of a block, by faiss; on a GPU without faiss-gpu by torch."""
    if not torch.cuda.is_available():
        return faiss.knn(queries, block, k, metric=faiss.METRIC_INNER_PRODUCT)
    where = device.best()
    if k > GPU_MOST or not faiss.get_num_gpus():
        return search_by_torch(queries, block, k, where)
    number = where.index or 0
    return faiss.knn_gpu(gpu_resources(number), queries, block, k, metric=faiss.METRIC_INNER_PRODUCT, device=number)


@cache
def gpu_resources(number: int) -> Any:
    """faiss's memory on a GPU, of 1.5 GiB, held for all searches of a process."""
    return faiss.StandardGpuResources()


def search_by_torch(
    queries: Float32[np.ndarray, "query dim"],
    block: Float32[np.ndarray, "row dim"],
    k: int,
    where: torch.device,
    products: int = PRODUCTS,
) -> tuple[Float32[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
    """The same on a device, at most `products` inner products at once; equal ones come in any order."""
    offered, results = torch.from_numpy(block).to(where), []
    for part in blocks_within(len(queries), len(block), products):
        with device.exact():
            best = (torch.from_numpy(queries[part]).to(where) @ offered.T).topk(k)
        results.append(best)
    scores, positions = (torch.cat(parts).cpu().numpy() for parts in zip(*results, strict=True))
    return scores, positions


def rows_at_once(dim: int) -> int:
    """Rows of a block: on a GPU, where each block costs a merge on the CPU, so many as fill a GiB."""
    return max(BLOCK_ROWS, 2**28 // dim) if torch.cuda.is_available() else BLOCK_ROWS


def nearest(
    queries: Rows,
    gallery: Rows,
    k: int,
    *,
    metric: Metric = "inner_product",
    exclude_self: bool = False,
    rows: int | None = None,
) -> tuple[Float32[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
    """Inner products (of unit vectors for `cosine`) and indices of each query's k nearest gallery rows, nearest first.

    With `exclude_self`, query i is gallery row i and is left out by its index: other rows that equal it stay. At most
    `rows` rows are read at once, by default as many as suit the machine. Several processes share the queries.
    ValueError for shapes that do not fit, values that are not finite, and k outside 1 to the size of the gallery.
    """
    check(queries, gallery, k, exclude_self)
    rows = rows or rows_at_once(queries.shape[1])
    own, width = processes.share(queries.shape[0]), k + exclude_self
    scores = np.full((own.stop - own.start, width), -np.inf, np.float32)
    indices = np.full(scores.shape, gallery.shape[0], np.int64)
    for offered in blocks(gallery.shape[0], rows):
        block = read(gallery, offered, metric, "gallery")
        for part in blocks(own, rows):
            here = slice(part.start - own.start, part.stop - own.start)
            more, positions = search(read(queries, part, metric, "queries"), block, min(width, len(block)))
            more, positions = np.hstack([scores[here], more]), np.hstack([indices[here], positions + offered.start])
            order = np.lexsort((positions, -more), axis=1)[:, :width]
            scores[here], indices[here] = (np.take_along_axis(values, order, 1) for values in (more, positions))
    if exclude_self:
        order = others_first(indices, np.arange(own.start, own.stop), k)
        scores, indices = np.take_along_axis(scores, order, 1), np.take_along_axis(indices, order, 1)
    return processes.gather_array(scores), processes.gather_array(indices)


def others_first(
    indices: Int64[np.ndarray, "query more"], own: Int64[np.ndarray, " query"], k: int
) -> Int64[np.ndarray, "query rank"]:
    """The places of the first k indices without the query's own, or where that is not among them without the last."""
    return np.argsort(indices == own[:, None], axis=1, kind="stable")[:, :k]


def without_self(
    indices: Int64[np.ndarray, "query more"], own: Int64[np.ndarray, " query"], k: int
) -> Int64[np.ndarray, "query rank"]:
    """The first k of k + 1 indices without the query's own, or where that is not among them without the last."""
    return np.take_along_axis(indices, others_first(indices, own, k), 1)


def check(queries: Rows, gallery: Rows, k: int, exclude_self: bool) -> None:
    q, g = tuple(queries.shape), tuple(gallery.shape)
    if len(q) != 2 or len(g) != 2 or q[1] != g[1] or 0 in q + g:
        raise ValueError(f"queries {q} and gallery {g}; both must be (rows, dim), not empty, with the same dim")
    if exclude_self and q != g:
        raise ValueError(f"{q[0]} queries and {g[0]} gallery rows; to leave self out both must be the same rows")
    if not 1 <= k <= g[0] - exclude_self:
        largest = g[0] - exclude_self
        raise ValueError(f"k = {k} neighbours among {largest} other rows; allowed is 1 to {largest}: ask for fewer")
