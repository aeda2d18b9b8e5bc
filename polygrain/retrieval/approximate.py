"""The nearest others of every row: exactly, or by an inverted file that measures how much it misses.

An inverted file (`ivf`, faiss) puts rows into cells and compares a row with those of the nearest cells only. How many
cells it looks into follows from the recall that is asked for: the fewest that reach it on a sample of the rows.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import faiss
import numpy as np
from jaxtyping import Float32, Float64, Int64
from pydantic import Field

from polygrain.compute import device, processes
from polygrain.compute.blocks import Rows, blocks
from polygrain.retrieval.neighbours import BLOCK_ROWS, GPU_MOST, Metric, nearest, read, without_self

log = logging.getLogger(__name__)

InvertedFile = Any  # faiss.IndexIVF, or its like on a GPU
Method = Literal["exact", "ivf"]
Index = Annotated[
    Literal["auto", "exact", "ivf"],
    Field(description="exact compares all pairs; ivf misses some, and is measured; auto: ivf where n is large"),
]
Recall = Annotated[
    float, Field(ge=0.5, le=0.999, description="least share of the exact neighbours that ivf finds, on drawn images")
]

# To here all pairs are compared: minutes on a few cores.
EXACT_ROWS = 200_000
# Rows whose exact neighbours are sought as well.
SAMPLE = 1_000
# Rows that a cell's centre is trained on: faiss calls fewer than 39 too few.
TRAINED = 39


@dataclass(frozen=True)
class KnnGraph:
    """Neighbours `row rank`, nearest first, and how they were found.

    `recall`: the mean share of the exact neighbours that `asked` drawn rows got, and its standard `error`; 1 if exact.
    `effort`: cells looked into.
    """

    neighbours: Int64[np.ndarray, "row rank"]
    index: Method
    recall: float = 1.0
    error: float = 0.0
    asked: int = 0
    effort: int = 0


def choose(index: str, n: int) -> Method:
    """The method that `auto` means for n rows, logged where it is not exact; ValueError for more cells than rows."""
    if index == "ivf" and n < cells(n):
        raise ValueError(
            f"index ivf puts {n} images into {cells(n)} cells; a cell needs one at least: set index to exact or auto"
        )
    if index == "auto":
        index = "exact" if n <= EXACT_ROWS else "ivf"
        if index == "ivf":
            log.info("index ivf for %s images: exact is for %s at most", f"{n:,}", f"{EXACT_ROWS:,}")
    return "exact" if index == "exact" else "ivf"


def cells(n: int) -> int:
    """A row is compared with all centres and with the rows of some cells: with 16 of them, both cost the same."""
    return max(1, round(4 * n**0.5))


def nearest_others(
    rows: Rows,
    k: int,
    index: str,
    recall: float,
    *,
    metric: Metric = "cosine",
    asked: int = SAMPLE,
    shown: Callable[[list[slice]], Iterable[slice]] = iter,
) -> KnnGraph:
    """The k nearest other rows of every row by `index`, exact or with a recall of at least `recall` where it can.

    The rows are read in blocks; the index holds them in half precision. Several processes share the queries, and each
    builds the whole index. `shown` gets the blocks of queries, to show progress. ValueError as `nearest` and `choose`.
    """
    n = rows.shape[0]
    method = choose(index, n)
    if method == "exact":
        return KnnGraph(nearest(rows, rows, k, metric=metric, exclude_self=True)[1], "exact")
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours among {n - 1} other rows; allowed is 1 to {n - 1}: ask for fewer")
    ivf = inverted_file(rows, metric, on_gpu=k < GPU_MOST and faiss.get_num_gpus() > 0)
    sample = np.sort(np.random.default_rng(0).choice(n, min(asked, n), replace=False))
    queries = read(rows[sample], slice(0, len(sample)), metric)
    exact = without_self(nearest(queries, rows, k + 1, metric=metric)[1], sample, k)
    shares = calibrate(ivf, lambda: without_self(search(ivf, queries, k + 1), sample, k), exact, recall)
    error = float(shares.std() / len(shares) ** 0.5)
    log.info("ivf, %d cells: recall %.4f +- %.4f on %d drawn rows", ivf.nprobe, shares.mean(), error, len(sample))
    results = []
    for part in shown(blocks(processes.share(n), BLOCK_ROWS)):
        block = read(rows, part, metric)
        results.append(without_self(search(ivf, block, k + 1), np.arange(part.start, part.stop), k))
    neighbours = processes.gather_array(np.concatenate(results))
    return KnnGraph(neighbours, "ivf", float(shares.mean()), error, len(sample), ivf.nprobe)


def inverted_file(rows: Rows, metric: Metric, on_gpu: bool = False) -> InvertedFile:
    """The rows in cells, in half precision."""
    (n, dim), count = rows.shape, cells(rows.shape[0])
    ivf: InvertedFile = faiss.index_factory(dim, f"IVF{count},SQfp16", faiss.METRIC_INNER_PRODUCT)
    if on_gpu:
        ivf = faiss.index_cpu_to_gpus_list(ivf, gpus=[device.best().index or 0])
    ivf.cp.min_points_per_centroid = 1
    drawn = np.sort(np.random.default_rng(0).choice(n, min(n, TRAINED * count), replace=False))
    ivf.train(read(rows[drawn], slice(0, len(drawn)), metric))
    for part in blocks(n, BLOCK_ROWS):
        ivf.add(read(rows, part, metric))
    return ivf


def most_cells(ivf: InvertedFile) -> int:
    """The numbers of cells that a search may look into."""
    return min(ivf.nlist, GPU_MOST if isinstance(ivf, getattr(faiss, "GpuIndexIVF", ())) else ivf.nlist)


def search(ivf: InvertedFile, queries: Float32[np.ndarray, "query dim"], k: int) -> Int64[np.ndarray, "query rank"]:
    """The k best rows of each query, ties by index; queries that get too few ask again, in more cells."""
    scores, indices = ivf.search(queries, k)
    indices = np.take_along_axis(indices, np.lexsort((indices, -scores), axis=1), 1)
    short, effort = np.flatnonzero((indices < 0).any(1)), ivf.nprobe
    if len(short) and effort < most_cells(ivf):
        ivf.nprobe = min(2 * effort, most_cells(ivf))
        indices[short] = search(ivf, queries[short], k)
        ivf.nprobe = effort
    return indices


def calibrate(
    ivf: InvertedFile,
    ask: Callable[[], Int64[np.ndarray, "query rank"]],
    exact: Int64[np.ndarray, "query rank"],
    recall: float,
) -> Float64[np.ndarray, " query"]:
    """Sets `nprobe` to the fewest cells with the wanted recall, or to all; returns each query's share of `exact`.

    `ask` searches the index. The mean recall minus two standard errors has to reach `recall`.
    """

    def shares(effort: int) -> Float64[np.ndarray, " query"]:
        ivf.nprobe = effort
        return np.array([np.isin(*pair).mean() for pair in zip(exact, ask(), strict=True)])

    def reaches(effort: int) -> bool:
        values = shares(effort)
        return bool(values.mean() - 2 * values.std() / len(values) ** 0.5 >= recall)

    low, high = 0, 1
    while high < most_cells(ivf) and not reaches(high):
        low, high = high, min(2 * high, most_cells(ivf))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    values = shares(high)
    if values.mean() < recall:
        log.warning("the %d cells that may be searched give a recall of %.4f, below %g", high, values.mean(), recall)
    return values
