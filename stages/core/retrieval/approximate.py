"""The nearest others of every row, by an index that compares a part of all pairs and says how much it misses.

An inverted file (`ivf`) puts rows into cells, and compares the rows of a cell with those of the nearest cells: all at
once, by one product of matrices, where an index that is asked for one row after another reads the cells again for each.
A graph (`hnsw`, faiss's) is walked from row to row. Both keep rows in half precision. How many cells are looked into,
or how wide the walk is, follows from the recall that is wanted: the least that reaches it on drawn rows, held against
all rows.
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
from torch import Tensor

from stages.core.compute import device, processes
from stages.core.compute.blocks import blocks, blocks_within
from stages.core.compute.distributed import Distributed, share_of, turns
from stages.core.compute.vectors import CELLS, inner_products, squared_distances
from stages.core.retrieval.index import duplicates
from stages.core.retrieval.neighbours import ROWS, Metric, Rows, nearest, read, search, without_self
from stages.core.retrieval.ranking import rank

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
# Links of a row in the graph, and rows that are looked at to find them.
LINKS, BUILT = 32, 80
# How wide a walk among the centres of cells is.
WALK = 64
# Two standard errors: the recall of all rows is rarely lower than that of the sample less so much.
MARGIN = 2
# So many more than are wanted are found in float32, that float64 may choose.
SPARE = 8
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

    The rows are read in blocks, and an index holds half precision, so that memory is 2 n dim bytes (hnsw: and 4 LINKS
    2 n). Of several processes each has the cells of its part of the rows (hnsw: of all), and asks for its part. `shown`
    is given the parts that are asked for one after another, to show how far it is.
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
    mine = share_of(rows)[0]
    neighbours = np.empty((mine.stop - mine.start, k), np.int64)
    for part in shown(list(turns(mine, n, ROWS))):
        which, those = built.others(part, k, effort)
        neighbours[which - mine.start] = those
    return Graph(processes.gather_array(neighbours), method, found, error, len(sample), effort)


class Ivf:
    """Rows in cells, each with the rows nearest to its centre; each process has those of its own share of the rows."""

    def __init__(self, rows: Rows, metric: Metric) -> None:
        (n, dim), count = rows.shape, cells(rows.shape[0])
        (mine, held), self.most = share_of(rows), count
        self.start = mine.start
        drawn = np.sort(np.random.default_rng(0).choice(n, min(n, TRAINED * count), replace=False))
        self.finder, self.centres = trained_centres(pick(rows, drawn, metric), count)
        parts = blocks(mine, ROWS)
        vectors = (read(held, part.start, part.stop, metric, "features") for part in parts)
        owners = np.concatenate([np.empty(0, np.int64), *map(self.cells_of, vectors)])
        order = np.argsort(owners, kind="stable")
        # The rows of a cell follow each other, in ascending order.
        self.numbers, self.owners = mine.start + order, owners[order]
        self.edges = np.searchsorted(self.owners, np.arange(count + 1))
        self.rows = torch.empty((len(order), dim), dtype=torch.float16, device=device.best())
        places = torch.from_numpy(np.argsort(order, kind="stable")).to(self.rows.device)
        for part in parts:
            vectors = torch.from_numpy(read(held, part.start, part.stop, metric, "features"))
            self.rows[places[part.start - mine.start : part.stop - mine.start]] = vectors.to(self.rows)
        pairs = [start + duplicates(self.rows[start:stop].float()) for start, stop in pairwise(self.edges.tolist())]
        self.later, self.first = torch.cat(pairs, 1).cpu()

    def cells_of(self, vectors: Float32[np.ndarray, "row dim"]) -> Int64[np.ndarray, " row"]:
        """The cell of each vector."""
        return self.finder.search(vectors, 1)[1][:, 0]

    def search(
        self,
        queries: Float32[np.ndarray, "query dim"],
        k: int,
        effort: int,
        owners: Int64[np.ndarray, " query"] | None = None,
    ) -> Int64[np.ndarray, "query rank"]:
        """The k best rows of each query, ties by index, -1 where the cells looked into hold fewer.

        Looked into are the `effort` cells nearest to the query's own (`owners`, where they are known). All processes
        ask at once, each for its own queries, and look for those of all among the rows that they hold.
        """
        owners = self.cells_of(queries) if owners is None else owners
        edges = Distributed(queries).edges
        found = self.within(processes.gather_array(queries), processes.gather_array(owners), k + SPARE, effort)
        for owner, part in enumerate(pairwise(edges)):
            offered = [processes.gather_at(np.ascontiguousarray(values[slice(*part)]), owner) for values in found]
            if owner == processes.rank():
                scores, numbers = map(np.hstack, offered)
        return best(scores, numbers, k)[1]

    def within(
        self,
        queries: Float32[np.ndarray, "query dim"],
        owners: Int64[np.ndarray, " query"],
        width: int,
        effort: int,
    ) -> tuple[Float64[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
        """The best of the rows held here for each query, with its scores; -inf and -1 beyond what there is."""
        scores, numbers = np.full((len(queries), width), -np.inf), np.full((len(queries), width), -1)
        known, groups = np.unique(owners, return_inverse=True)
        nearest_cells = search(self.centres[known], self.centres, effort, "inner_product")[1]
        order = np.argsort(groups, kind="stable")
        members = np.split(order, np.bincount(groups, minlength=len(known)).cumsum()[:-1])
        for group, those in zip(members, nearest_cells, strict=True):
            asked = torch.from_numpy(queries[group]).to(self.rows.device)
            for offered in self.pieces(np.sort(those)):
                found = self.compared(asked, offered, width)
                both = (np.hstack(pair) for pair in zip((scores[group], numbers[group]), found, strict=True))
                scores[group], numbers[group] = best(*both, width)
        return scores, numbers

    def pieces(self, those: Int64[np.ndarray, " cell"]) -> Iterator[Int64[Tensor, " place"]]:
        """The places of these cells' rows, as many at once as fit into memory with their scores."""
        places = [torch.arange(*self.edges[cell : cell + 2].tolist()) for cell in those]
        return (part for part in torch.cat(places).split(ROWS) if len(part))

    def compared(
        self, asked: Float32[Tensor, "query dim"], places: Int64[Tensor, " place"], width: int
    ) -> tuple[Float64[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
        """The best rows of some places: found by products in float32, told by products in float64."""
        here = places.to(self.rows.device)
        offered, width = self.rows[here].float(), min(width, len(places))
        later, first = self.twins(places)
        found = [np.empty((0, width), np.int64)]
        for part in blocks_within(len(asked), len(places), CELLS):
            products = torch.mm(asked[part], offered.T)
            # A product rounds equal rows differently, by their place in it: they all take the score of the first.
            products[:, later] = products[:, first]
            if width == len(places):  # `rank` looks one column further
                products = torch.nn.functional.pad(products, (0, 1), value=-torch.inf)
            found.append(rank(products, width).cpu().numpy())
        columns = np.concatenate(found)
        each = torch.arange(len(asked), device=asked.device).repeat_interleave(width)
        exact = inner_products(asked, each, offered, torch.from_numpy(columns.ravel()).to(asked.device))
        return exact.view(-1, width).cpu().numpy(), self.numbers[places.numpy()][columns]

    def twins(self, places: Int64[Tensor, " place"]) -> tuple[Int64[Tensor, " pair"], Int64[Tensor, " pair"]]:
        """Which of these places, in ascending order, hold what an earlier one holds, and where that is among them."""
        low, high = torch.searchsorted(self.later, places[[0, -1]] + torch.tensor([0, 1]))
        later, first = self.later[low:high], self.first[low:high]
        at, source = (torch.searchsorted(places, value) for value in (later, first))
        last = len(places) - 1
        both = (places[at.clamp_max(last)] == later) & (places[source.clamp_max(last)] == first)
        return at[both], source[both]

    def others(
        self, part: slice, k: int, effort: int
    ) -> tuple[Int64[np.ndarray, " row"], Int64[np.ndarray, "row rank"]]:
        """As many rows as the part has, cell by cell, and the k best of each but itself."""
        own = slice(part.start - self.start, part.stop - self.start)
        queries, owners, numbers = self.rows[own].float().cpu().numpy(), self.owners[own], self.numbers[own]

        def found(which: np.ndarray, k: int, effort: int) -> np.ndarray:
            return self.search(queries[which], k, effort, owners[which])

        return numbers, others_of(found, numbers, k, effort, self.most)


def best(
    scores: Float64[np.ndarray, "query more"], numbers: Int64[np.ndarray, "query more"], k: int
) -> tuple[Float64[np.ndarray, "query rank"], Int64[np.ndarray, "query rank"]]:
    """The k highest scores of each query, ties by number."""
    order = np.lexsort((numbers, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1)


class Hnsw:
    """Rows linked with rows near them, on levels that grow sparse.

    One thread builds it, so that it comes out the same twice.
    """

    def __init__(self, rows: Rows, metric: Metric) -> None:
        n, dim = rows.shape
        self.held, self.metric, self.most = share_of(rows)[1], metric, n
        self.index = faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = BUILT
        self.index.train(read(rows, 0, 1, metric, "features"))
        with one_thread():
            for part in blocks(n, ROWS):
                self.index.add(read(rows, part.start, part.stop, metric, "features"))

    def search(self, queries: Float32[np.ndarray, "query dim"], k: int, effort: int) -> Int64[np.ndarray, "query rank"]:
        """The k best rows of each query, -1 where the walk met fewer."""
        self.index.hnsw.efSearch = max(effort, k)
        return self.index.search(queries, k)[1]

    def others(
        self, part: slice, k: int, effort: int
    ) -> tuple[Int64[np.ndarray, " row"], Int64[np.ndarray, "row rank"]]:
        """The rows of the part, and the k best of each but itself."""
        queries = read(self.held, part.start, part.stop, self.metric, "features")
        numbers = np.arange(part.start, part.stop)
        found = others_of(lambda which, *more: self.search(queries[which], *more), numbers, k, effort, self.most)
        return numbers, found


def others_of(
    search: Callable[[np.ndarray, int, int], np.ndarray],
    own: Int64[np.ndarray, " query"],
    k: int,
    effort: int,
    most: int,
) -> Int64[np.ndarray, "query rank"]:
    """The k best rows of each query but its own; queries that are offered too few ask again, with more effort.

    `search` is asked for some queries, by their places. All processes search as often as the one that does most.
    """
    found = search(np.arange(len(own)), k + 1, effort)
    short = np.flatnonzero((found < 0).any(1))
    while effort < most and processes.total(len(short)):
        effort = min(2 * effort, most)
        found[short] = search(short, k + 1, effort)
        short = short[(found[short] < 0).any(1)]
    if len(short):
        raise ValueError(
            f"the index finds fewer than {k} neighbours of row {own[short[0]]}: set index to exact or ask for fewer"
        )
    return without_self(found, own, k)


def trained_centres(
    vectors: Float32[np.ndarray, "row dim"], count: int
) -> tuple[faiss.Index, Float32[np.ndarray, "cell dim"]]:
    """The centres of so many cells, found by a few rounds of k-means, and an index that finds a row's nearest.

    That is a graph: to compare every row with all centres would take longer than all the rest. A GPU compares them all.
    """
    dim = vectors.shape[1]
    flat, clustering = faiss.IndexFlatIP(dim), faiss.Clustering(dim, count)
    clustering.niter, clustering.min_points_per_centroid, clustering.spherical = ROUNDS, 1, True
    clustering.train(vectors, flat)
    centres = np.asarray(flat.reconstruct_n(0, count))  # a tensor, where `faiss.contrib.torch_utils` is loaded
    if faiss.get_num_gpus():
        return flat, centres
    graph = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = BUILT, WALK
    with one_thread():
        graph.add(centres)
    return graph, centres


@contextmanager
def one_thread() -> Iterator[None]:
    """faiss works in one thread inside: several would link a graph's rows in an order that chance decides."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


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
        asking = queries[mine]
        found = others_of(lambda which, *more: built.search(asking[which], *more), sample[mine], k, effort, built.most)
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
