"""The nearest others of every row, by an index that compares a part of all pairs and says how much it misses.

An inverted file (`ivf`) puts rows into cells, and compares a row with those of the nearest cells: by short codes first,
then the best of these in half precision. A graph (`hnsw`) is walked from row to row. Both are faiss's. How many cells
are looked into, or how wide the walk is, follows from the recall that is wanted: the least that reaches it on drawn
rows, held against all rows.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, get_args

import faiss
import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from pydantic import Field

from polygrain.compute import device, processes
from polygrain.compute.blocks import blocks
from polygrain.compute.distributed import Distributed, share_of, turns
from polygrain.compute.vectors import inner_products, squared_distances
from polygrain.retrieval.neighbours import ROWS, Metric, Rows, nearest, read, without_self

log = logging.getLogger(__name__)

Method = Literal["exact", "ivf", "hnsw"]
Index = Annotated[
    Literal["auto", "exact", "ivf", "hnsw"],
    Field(description="exact compares all pairs; ivf and hnsw miss some, and are measured; auto: ivf where n is large"),
]
Recall = Annotated[
    float,
    Field(ge=0.5, le=0.999, description="least share of the exact neighbours that ivf and hnsw find, on drawn images"),
]

# To here all pairs are compared: minutes on a few cores.
EXACT_ROWS = 200_000
# Rows whose exact neighbours are sought as well.
SAMPLE = 1_000
# Rows that a cell's centre is trained on: faiss calls fewer than 39 too few.
TRAINED = 39
ROUNDS = 10
HALF = faiss.ScalarQuantizer.QT_fp16
# Of a code, which stands for two numbers, or for one where they are odd in number.
BITS = 4
# Rows that codes find for each neighbour that is wanted: as many as cells are looked into, within these.
FEWEST, MOST = 16, 64
# Links of a row in the graph, and rows that are looked at to find them.
LINKS, BUILT = 32, 80
# How wide a walk among the centres of cells is.
WALK = 64
# Two standard errors: the recall of all rows is rarely lower than that of the sample less so much.
MARGIN = 2
# Cosines as near as this are equal but for rounding.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Graph:
    """Neighbours `row rank`, nearest first; how they were found.

    `recall`: the share of the exact neighbours that were found for `asked` drawn rows, and its standard `error`; 1 if
    exact. `effort`: cells looked into (ivf), or the width of the walk where that is more than k (hnsw).
    """

    neighbours: Int64[np.ndarray, "row rank"]
    index: Method
    recall: float = 1.0
    error: float = 0.0
    asked: int = 0
    effort: int = 0


def choose(index: str, n: int) -> Method:
    """What `auto` means for n rows, with its reason in the log; ValueError for other words and more cells than rows."""
    if index not in get_args(get_args(Index)[0]):
        raise ValueError(f"index {index!r}; allowed are {', '.join(get_args(get_args(Index)[0]))}")
    if index == "ivf" and n < cells(n):
        raise ValueError(
            f"index ivf puts {n} images into {cells(n)} cells; a cell needs one at least: set index to exact or auto"
        )
    if index != "auto":
        return index
    chosen = "exact" if n <= EXACT_ROWS else "ivf"
    reason = "no more than" if chosen == "exact" else "more than"
    log.info("index %s: %s images are %s %s", chosen, f"{n:,}", reason, f"{EXACT_ROWS:,}")
    return chosen


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
) -> Graph:
    """The k nearest other rows of every row by `index`, exact or with a recall of at least `recall` where it can.

    The rows are read in blocks, and an index holds half precision, so that memory is 2 n dim bytes (ivf: and n dim / 4
    of codes; hnsw: and 4 LINKS 2 n). Of several processes each has the cells of its part of the rows (hnsw: of all),
    and asks for its part. `shown` is given the parts that are asked for one after another, to show how far it is.
    ValueError as `nearest` and `choose`.
    """
    n = rows.shape[0]
    method = choose(index, n)
    if method == "exact":
        return Graph(nearest(rows, rows, k, metric=metric, exclude_self=True)[1], "exact")
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours among {n - 1} other rows; allowed is 1 to {n - 1}: ask for fewer")
    built = Ivf(rows, metric) if method == "ivf" else Hnsw(rows, metric)
    sample = np.sort(np.random.default_rng(0).choice(n, min(asked, n), replace=False))
    measure = sampled_recall(rows, sample, k, metric, built)
    shares = measure(effort := least_effort(lambda effort: lower_end(measure(effort)) >= recall, built.most))
    found, error = float(shares.mean()), standard_error(shares)
    if found - MARGIN * error < recall:
        log.warning("%s with its largest effort of %d has a recall of %.4f, not %g", method, effort, found, recall)
    log.info("%s, effort %d: recall %.4f +- %.4f on %d drawn rows", method, effort, found, error, len(sample))
    parts = [built.others(part, k, effort) for part in shown(list(turns(share_of(rows)[0], n, ROWS)))]
    return Graph(processes.gather_array(np.concatenate(parts)), method, found, error, len(sample), effort)


class Ivf:
    """Rows in cells, each with the rows nearest to its centre; each process has those of its own share of the rows.

    Codes tell how a row differs from its cell's centre, with four bits for two numbers. A query's products with them
    are looked up many at once, so a row costs a fraction of its product in half precision; the rows that stand best by
    their codes are compared again in that. A GPU multiplies as fast as it reads, and does without codes.
    """

    def __init__(self, rows: Rows, metric: Metric) -> None:
        (n, dim), count = rows.shape, cells(rows.shape[0])
        (self.mine, self.held), self.metric, self.most = share_of(rows), metric, count
        drawn = np.sort(np.random.default_rng(0).choice(n, min(n, TRAINED * count), replace=False))
        known = pick(rows, drawn, metric)
        centres = trained_centres(known, count)
        if faiss.get_num_gpus():
            self.cells = self.index = on_gpu(
                faiss.IndexIVFScalarQuantizer(centres, dim, count, HALF, faiss.METRIC_INNER_PRODUCT, False)
            )
        else:
            codes = dim // 2 if dim % 2 == 0 else dim
            self.cells = faiss.IndexIVFPQFastScan(centres, dim, count, codes, BITS, faiss.METRIC_INNER_PRODUCT)
            self.cells.pq.cp.min_points_per_centroid = 1
            halves = faiss.IndexScalarQuantizer(dim, HALF, faiss.METRIC_INNER_PRODUCT)
            self.index = faiss.IndexRefine(self.cells, halves)
        self.index.train(known)
        for part in blocks(self.mine, ROWS):
            self.index.add(read(self.held, part.start, part.stop, metric, "features"))

    def search(self, queries: Float32[np.ndarray, "query dim"], k: int, effort: int) -> Int64[np.ndarray, "query rank"]:
        """The k best rows of each query, ties by index, -1 where the cells looked into hold fewer.

        All processes ask at once, each for its own queries, and look for those of all among the rows that they hold.
        """
        self.cells.nprobe = effort
        if self.index is not self.cells:
            self.index.k_factor = min(max(FEWEST, effort), MOST)
        asked, own = Distributed(queries), processes.rank()
        for owner, part in enumerate(pairwise(asked.edges)):
            found, rows = self.index.search(asked[slice(*part)], k)
            rows[rows >= 0] += self.mine.start
            offered = [processes.gather_at(values, owner) for values in (found, rows)]
            if owner == own:
                scores, numbers = map(np.hstack, offered)
        return np.take_along_axis(numbers, np.lexsort((numbers, -scores), axis=1)[:, :k], 1)

    def others(self, part: slice, k: int, effort: int) -> Int64[np.ndarray, "query rank"]:
        """The k best of each row of the part, but itself."""
        queries = read(self.held, part.start, part.stop, self.metric, "features")
        return others_of(self.search, queries, np.arange(part.start, part.stop), k, effort, self.most)


class Hnsw:
    """Rows linked with rows near them, on levels that grow sparse.

    One thread builds it, so that it comes out the same twice.
    """

    def __init__(self, rows: Rows, metric: Metric) -> None:
        n, dim = rows.shape
        self.held, self.metric, self.most = share_of(rows)[1], metric, n
        self.index = faiss.IndexHNSWSQ(dim, HALF, LINKS, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = BUILT
        self.index.train(read(rows, 0, 1, metric, "features"))
        with one_thread():
            for part in blocks(n, ROWS):
                self.index.add(read(rows, part.start, part.stop, metric, "features"))

    def search(self, queries: Float32[np.ndarray, "query dim"], k: int, effort: int) -> Int64[np.ndarray, "query rank"]:
        """The k best rows of each query, -1 where the walk met fewer."""
        self.index.hnsw.efSearch = max(effort, k)
        return self.index.search(queries, k)[1]

    others = Ivf.others


def others_of(
    search: Callable[[np.ndarray, int, int], np.ndarray],
    queries: Float32[np.ndarray, "query dim"],
    own: Int64[np.ndarray, " query"],
    k: int,
    effort: int,
    most: int,
) -> Int64[np.ndarray, "query rank"]:
    """The k best rows of each query but its own; queries that are offered too few ask again, with more effort.

    All processes search as often as the one that does most.
    """
    found = search(queries, k + 1, effort)
    short = np.flatnonzero((found < 0).any(1))
    while effort < most and processes.total(len(short)):
        effort = min(2 * effort, most)
        found[short] = search(queries[short], k + 1, effort)
        short = short[(found[short] < 0).any(1)]
    if len(short):
        raise ValueError(
            f"the index finds fewer than {k} neighbours of row {own[short[0]]}: set index to exact or ask for fewer"
        )
    return without_self(found, own, k)


def trained_centres(vectors: Float32[np.ndarray, "row dim"], count: int) -> faiss.Index:
    """The centres of so many cells, found by a few rounds of k-means, behind an index of their own.

    That is a graph: to compare every row with all centres would take longer than all the rest. A GPU compares them all.
    """
    dim = vectors.shape[1]
    flat, clustering = faiss.IndexFlatIP(dim), faiss.Clustering(dim, count)
    clustering.niter, clustering.min_points_per_centroid, clustering.spherical = ROUNDS, 1, True
    clustering.train(vectors, flat)
    if faiss.get_num_gpus():
        return flat
    graph = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = BUILT, WALK
    with one_thread():
        graph.add(flat.reconstruct_n(0, count))
    return graph


@contextmanager
def one_thread() -> Iterator[None]:
    """faiss works in one thread inside: several would link a graph's rows in an order that chance decides."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def on_gpu(index: faiss.Index) -> faiss.Index:
    """The index on this process's GPU, where this build of faiss knows one."""
    if not faiss.get_num_gpus():
        return index
    return faiss.index_cpu_to_gpus_list(index, gpus=[device.best().index or 0])


def pick(rows: Rows, which: Int64[np.ndarray, " row"], metric: Metric) -> Float32[np.ndarray, "row dim"]:
    """Some rows, as `read` gives them."""
    return read(rows[which], 0, len(which), metric, "features")


def sampled_recall(
    rows: Rows, sample: Int64[np.ndarray, " query"], k: int, metric: Metric, built: Ivf | Hnsw
) -> Callable[[int], Float64[np.ndarray, " query"]]:
    """What measures, at an effort, the share of right ones among the k neighbours of each row of the sample.

    Right is what is as near as the k-th exact neighbour: of rows that are equal any will do.
    """
    queries = pick(rows, sample, metric)
    exact = without_self(nearest(queries, rows, min(k + 1, rows.shape[0]), metric=metric)[1], sample, k)

    def scores(found: Int64[np.ndarray, "query rank"]) -> Float64[np.ndarray, "query rank"]:
        which, places = np.unique(found, return_inverse=True)
        offered = torch.from_numpy(pick(rows, which, metric))
        asking = torch.arange(len(queries)).repeat_interleave(k)
        places = torch.from_numpy(places.ravel())
        return inner_products(torch.from_numpy(queries), asking, offered, places).view(-1, k).numpy()

    last = scores(exact)[:, -1:] - ROUNDING

    def measure(effort: int) -> Float64[np.ndarray, " query"]:
        # What is found is shared, so that all processes come to the same effort.
        mine = processes.share(len(sample))
        found = others_of(built.search, queries[mine], sample[mine], k, effort, built.most)
        found = processes.gather_array(found)
        return (scores(found) >= last).mean(1)

    return measure


def standard_error(shares: Float64[np.ndarray, " query"]) -> float:
    return float(shares.std() / len(shares) ** 0.5)


def lower_end(shares: Float64[np.ndarray, " query"]) -> float:
    return float(shares.mean()) - MARGIN * standard_error(shares)


def least_effort(suffices: Callable[[int], bool], most: int) -> int:
    """The least effort of 1 to `most` that suffices, where more effort never does worse; `most` if none does."""
    low, high = 0, 1
    while high < most and not suffices(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


class Centres:
    """Centroids of clusters in cells: finds the nearest of many for each vector, nearly always.

    `recall`: the share of the `asked` vectors that get their nearest one, or one as near. Of several processes each has
    some of the centroids and is asked for all vectors; a vector's nearest is the nearest of what they find together.
    """

    def __init__(
        self, centroids: Float32[np.ndarray, "k dim"], asked: Float32[np.ndarray, "query dim"], recall: float
    ) -> None:
        dim, count = centroids.shape[1], min(len(centroids), cells(len(centroids)))
        self.index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, count, faiss.METRIC_L2)
        self.index.cp.niter, self.index.cp.min_points_per_centroid = ROUNDS, 1
        self.index.train(centroids)
        self.index.add(centroids)
        queries, rows, each = torch.from_numpy(asked), torch.from_numpy(centroids), torch.arange(len(asked))

        def costs(found: Int64[np.ndarray, " query"]) -> Float64[np.ndarray, " query"]:
            # From the differences: faiss's own lose the last digits where vectors are long.
            return least_of_all(squared_distances(queries, each, rows, torch.from_numpy(found)).numpy())

        with processes.alone():
            exact = nearest(asked, centroids, 1, metric="l2")[1][:, 0]
        last = costs(exact) * (1 + ROUNDING)

        def measure(effort: int) -> float:
            self.index.nprobe = effort
            return float((costs(self.near(asked)) <= last).mean())

        most = int(processes.gather_array(np.array([count])).max())
        self.index.nprobe = least_effort(lambda effort: measure(effort) >= recall, most)
        self.recall = measure(self.index.nprobe)

    def near(self, vectors: Float32[np.ndarray, "row dim"]) -> Int64[np.ndarray, " row"]:
        """The number of a centroid for each vector."""
        return self.index.search(vectors, 1)[1][:, 0]


def least_of_all(costs: Float64[np.ndarray, " query"]) -> Float64[np.ndarray, " query"]:
    """For each query the least that any process found."""
    return processes.gather_array(costs[None]).min(0)
