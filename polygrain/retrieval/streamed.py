"""The nearest others of rows that no process holds alone: each asks for its share, and all rows pass by in blocks.

The numbers of a row of unit length are rounded to multiples of 2^-26. Then each product of two numbers is a multiple of
2^-52, and no sum of them reaches 2, so that float64 holds all sums exactly. What is nearer thus depends neither on the
order in which they are added up, nor on the blocks, nor on how many processes there are; equal rows tie.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.compute import processes
from polygrain.compute.blocks import blocks, blocks_within
from polygrain.compute.device import has_bfloat16
from polygrain.compute.distributed import Distributed
from polygrain.compute.threads import threads
from polygrain.compute.vectors import CELLS, as_vectors, inner_products
from polygrain.retrieval.index import SHALLOW
from polygrain.retrieval.ranking import RANKED, above, certain
from polygrain.retrieval.shortlist import Shortlist

# A number is a multiple of its inverse.
GRID = 2.0**26
# Numbers that are rounded at once.
ROUNDED = 2**20
# The most neighbours that are held at once, 16 bytes each: 512 MiB. For more, all rows pass by again.
HELD = 2**25


def on_grid(rows: Float32[np.ndarray, "row dim"]) -> Float32[np.ndarray, "row dim"]:
    """The rows, each of unit length (zero where it is zero), rounded as above; no row depends on the others."""
    exact = rows.astype(np.float64)
    lengths = np.sqrt(np.square(exact).sum(1, keepdims=True))
    exact *= GRID / np.where(lengths > 0, lengths, 1)
    # Float32 has fewer digits above 1/4, and what it rounds to is a multiple, too.
    return (np.rint(exact, out=exact) / GRID).astype(np.float32)


def dealt_out(rows: Distributed) -> Distributed:
    """The rows on the grid, as many in each process, whichever held them; ValueError as `as_vectors`, in all."""
    n, d = rows.shape
    mine = processes.share(n)
    part = np.empty((mine.stop - mine.start, d), np.float32)
    for block in blocks_within(n, d, ROUNDED):
        passing = as_vectors(rows[block], f"embeddings from row {block.start} on").numpy()
        first, last = np.clip([block.start, block.stop], mine.start, mine.stop)
        part[first - mine.start : last - mine.start] = on_grid(passing[first - block.start : last - block.start])
    shares = [processes.share(n, of) for of in range(processes.count())]
    return Distributed(part, [share.stop - share.start for share in shares])


def rankings(
    x: Distributed, depths: Int64[np.ndarray, " row"]
) -> Iterator[tuple[Int64[np.ndarray, " query"], Int64[Tensor, "query rank"]]]:
    """The numbers of some rows of this process and of their nearest others, nearest first, ties to the lowest number.

    x: rows on the grid; depths: of all rows, below n. Each is ranked as deep as its depth, at least; those of depth 0
    are left out. A process holds its rows, a block of `CELLS` numbers and as many products, and `HELD` neighbours.
    """
    (n, d), own = x.shape, np.arange(x.own.start, x.own.stop)
    passing = blocks_within(n, d, CELLS)
    # Queries of similar depth go together, so that few of them are ranked deeper than they need.
    order = own[np.argsort(depths[own], kind="stable")]
    order = order[depths[order] > 0]
    deepest = int(depths[order].max(initial=1))
    step = max(1, min(CELLS // passing[0].stop, HELD // deepest))
    turns = held_together([order[part] for part in blocks(len(order), step)], depths)
    most = int(processes.gather_array(np.array([len(turns)])).max())
    # All see all blocks as often as the one that has most to ask.
    for turn in [*turns, *[[]] * (most - len(turns))]:
        asked = [Ranking(x.part[rows - x.own.start], rows, int(depths[rows].max())) for rows in turn]
        for part in passing:
            block = Block(x[part], part.start)
            for ranking in asked:
                ranking.look_at(block)
        while asked:  # what is handed out is let go, to make room for the next turn
            ranking = asked.pop()
            yield ranking.queries, torch.from_numpy(ranking.numbers)


def held_together(parts: list[np.ndarray], depths: Int64[np.ndarray, " row"]) -> list[list[np.ndarray]]:
    """Queries in turns, each with `HELD` neighbours at most, or with a single part."""
    turns, held = [], HELD
    for rows in parts:
        more = len(rows) * int(depths[rows].max())
        if held + more > HELD:
            turns.append([])
            held = 0
        turns[-1].append(rows)
        held += more
    return turns


class Block:
    """Rows that pass by, the first of which has the number `first`."""

    def __init__(self, rows: Float32[np.ndarray, "row dim"], first: int) -> None:
        self.x, self.first = torch.from_numpy(rows), first

    @cached_property
    def shortlist(self) -> Shortlist | None:
        return Shortlist(self.x) if has_bfloat16(self.x.device) else None

    @cached_property
    def doubles(self) -> Float64[Tensor, "row dim"]:
        return self.x.double()


class Ranking:
    """The k nearest others that have passed by so far, nearest first, of some queries; `scores` are their cosines."""

    def __init__(self, x: Float32[np.ndarray, "query dim"], queries: Int64[np.ndarray, " query"], k: int) -> None:
        self.x, self.queries = torch.from_numpy(x), queries
        self.scores, self.numbers = np.full((len(x), k), -np.inf), np.zeros((len(x), k), np.int64)

    def look_at(self, block: Block) -> None:
        """Takes up what is nearer in the block; blocks come in the order of their numbers."""
        itself = self.queries - block.first
        itself[(itself < 0) | (itself >= len(block.x))] = -1
        listed = self.listed(block, itself)
        if listed is None:
            self.compare_all(block, itself)
            return
        i, j = listed
        scores = inner_products(self.x, i, block.x, j).numpy()
        self.take_up(slice(0, len(self.x)), i.numpy(), j.numpy() + block.first, scores)

    def listed(self, block: Block, itself: Int64[np.ndarray, " query"]) -> Int64[Tensor, "pair row"] | None:
        """Queries and rows that may be among the nearest, where products in half precision tell them quickly."""
        k, least = self.scores.shape[1], self.scores[:, -1]
        k = k if k <= SHALLOW * len(block.x) else 0
        if block.shortlist is None or (k == 0 and least.min() == -np.inf):
            return None
        return block.shortlist.candidates(Shortlist(self.x), torch.arange(len(self.x)), itself, k, least)

    def compare_all(self, block: Block, itself: Int64[np.ndarray, " query"]) -> None:
        """Takes up what is nearer by the products of all pairs."""
        products = torch.mm(self.x.double(), block.doubles.T).numpy()
        own = np.flatnonzero(itself >= 0)
        products[own, itself[own]] = -np.inf
        n = len(block.x)
        k = min(n, self.scores.shape[1])

        def look(part: slice) -> None:
            scores = products[part]
            reached, _ = above(scores, np.maximum(certain(scores, k), self.scores[part, -1:]))
            self.take_up(part, reached // n, reached % n + block.first, scores.ravel().take(reached))

        list(threads().map(look, blocks_within(*products.shape, RANKED)))

    def take_up(
        self,
        part: slice,
        i: Int64[np.ndarray, " pair"],
        numbers: Int64[np.ndarray, " pair"],
        scores: Float64[np.ndarray, " pair"],
    ) -> None:
        """Takes up rows for queries of the part, given by query and then by number, higher than all before."""
        # Of equal scores the earlier numbers come first: a score that only reaches the last is too late.
        nearer = scores > self.scores[part, -1][i]
        met, counts = np.unique(i[nearer], return_counts=True)
        if not len(met):
            return
        rows, taken = part.start + met, np.arange(counts.max()) < counts[:, None]
        more, theirs = np.full(taken.shape, -np.inf), np.zeros(taken.shape, np.int64)
        more[taken], theirs[taken] = scores[nearer], numbers[nearer]
        scores = np.concatenate([self.scores[rows], more], axis=1)
        numbers = np.concatenate([self.numbers[rows], theirs], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self.scores.shape[1]]
        self.scores[rows] = np.take_along_axis(scores, order, 1)
        self.numbers[rows] = np.take_along_axis(numbers, order, 1)
