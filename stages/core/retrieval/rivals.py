"""Scores of other classes that queries keep, and the places that these leave to the query's own class."""

from threading import Lock

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

# No score of unit rows is as low.
BELOW_ALL = np.float32(-1.5)


class Rivals:
    """Queries that keep the scores that reach their bound, so many of them at most; several threads may add some."""

    def __init__(self, bounds: Float32[np.ndarray, " query"], most: Int64[np.ndarray, " query"]) -> None:
        self.bounds, self.most, self.count = bounds, most, np.zeros(len(most), np.int64)
        self.first = np.cumsum(most) - most
        # Pages that are never written to are never taken.
        self.scores = np.empty(most.sum(), np.float32)
        self.lock = Lock()

    def add_rows(self, scores: Float32[np.ndarray, "query image"], first: int) -> None:
        """Row i is of query `first` + i."""
        bounds = self.bounds[first : first + len(scores), None]
        reached = np.flatnonzero(scores >= bounds)
        edges = np.searchsorted(reached, np.arange(len(scores) + 1) * scores.shape[1])
        self.put(scores.ravel().take(reached), np.diff(edges), first)

    def add_columns(self, scores: Float32[np.ndarray, "image query"], first: int) -> None:
        """Column i is of query `first` + i; there are 65,536 at most."""
        width = scores.shape[1]
        reached = np.flatnonzero(scores >= self.bounds[first : first + width])
        columns = (reached % width).astype(np.uint16)
        by_column = columns.argsort(kind="stable")
        self.put(scores.ravel().take(reached[by_column]), np.bincount(columns, minlength=width), first)

    def put(self, scores: Float32[np.ndarray, " score"], counts: Int64[np.ndarray, " query"], first: int) -> None:
        """So many scores of each query from `first` on, one after another; in which order they come is no matter."""
        queries = slice(first, first + len(counts))
        with self.lock:
            begin = self.count[queries].copy()
            self.count[queries] += counts
        over = begin + counts > self.most[queries]
        if over.any():
            scores, counts = scores[np.repeat(~over, counts)], np.where(over, 0, counts)
        places = np.arange(len(scores))
        places += np.repeat(self.first[queries] + begin - (np.cumsum(counts) - counts), counts)
        self.scores[places] = scores

    def hits(
        self, own: Float32[np.ndarray, "query member"], itself: int, first: int
    ) -> tuple[Bool[np.ndarray, "query R"], Bool[np.ndarray, " query"]]:
        """What of the R nearest is of the own class, nearest first, and for which queries that is certain.

        own: the scores of a whole class, all below 2 in size, for the queries from `first` on, which are its members
        from `itself` on. Not certain are queries to which a rival is as near as one of their class, and those that
        fewer than R scores or more than were allowed for reached the bound of.
        """
        (count, size), queries = own.shape, slice(first, first + len(own))
        places = np.arange(min(self.count[queries].max(), self.most[queries].max()))
        kept = self.scores.take(self.first[queries, None] + places, mode="clip")
        kept = np.where(places < self.count[queries, None], kept, BELOW_ALL)
        # Whole numbers whose lowest bit tells the class from its rivals are sorted faster than scores with columns.
        keys = np.concatenate([ordered(own) + 1, ordered(kept)], axis=1)
        keys[np.arange(count), np.arange(itself, itself + count)] = np.iinfo(np.int32).min
        keys.sort(axis=1)
        nearest = keys[:, : -size - 1 : -1]
        tied = (nearest[:, 1:] ^ nearest[:, :-1] == 1).any(1)
        enough = nearest[:, size - 2] >= ordered(self.bounds[queries])
        return (nearest[:, :-1] & 1).astype(bool), enough & ~tied & (self.count[queries] <= self.most[queries])


def ordered(scores: Float32[np.ndarray, "*shape"]) -> Int32[np.ndarray, "*shape"]:
    """Even whole numbers in the order of scores below 2 in size."""
    # The bits of floats order as whole numbers do, but for negative ones, whose order is reversed; and minus zero
    # equals zero.
    bits = (scores + np.float32(0)).view(np.int32)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    bits <<= 1
    return bits
