"""Scores of negatives (images of other classes) that queries keep, and the places these leave to the own class."""

from threading import Lock

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from polygrain.compute.sortable import sortable

# No score of unit rows is as low.
BELOW_ALL = np.float32(-1.5)


class Negatives:
    """For each query the scores that reach its threshold, but `most` of them at most; several threads may add some.

    A query whose `count` has passed its `most` has lost scores, and its hits are not certain.
    """

    def __init__(self, thresholds: Float32[np.ndarray, " query"], most: Int64[np.ndarray, " query"]) -> None:
        self.thresholds, self.most, self.count = thresholds, most, np.zeros(len(most), np.int64)
        self.first = np.cumsum(most) - most
        # The system gives memory to a page only when it is first written to, so room that stays empty costs none.
        self.scores = np.empty(most.sum(), np.float32)
        self.lock = Lock()

    def add_rows(self, scores: Float32[np.ndarray, "query image"], first: int) -> None:
        """Row i is of query `first` + i."""
        thresholds = self.thresholds[first : first + len(scores), None]
        reached = np.flatnonzero(scores >= thresholds)
        edges = np.searchsorted(reached, np.arange(len(scores) + 1) * scores.shape[1])
        self.put(scores.ravel().take(reached), np.diff(edges), first)

    def add_columns(self, scores: Float32[np.ndarray, "image query"], first: int) -> None:
        """Column i is of query `first` + i; there are 65,536 at most."""
        width = scores.shape[1]
        reached = np.flatnonzero(scores >= self.thresholds[first : first + width])
        columns = (reached % width).astype(np.uint16)
        by_column = columns.argsort(kind="stable")
        self.put(scores.ravel().take(reached[by_column]), np.bincount(columns, minlength=width), first)

    def put(self, scores: Float32[np.ndarray, " score"], counts: Int64[np.ndarray, " query"], first: int) -> None:
        """Keeps `counts` scores for each query from `first` on; they follow one another, in any order per query."""
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
        """Which of the R nearest are of the own class, nearest first, and for which queries that is certain.

        `own` holds the scores of a whole class, all below 2 in size. Its rows are the queries from `first` on; as
        columns these are the members from `itself` on. A query is not certain in three cases: a negative scores the
        same as one of its class; fewer than R scores reach its threshold; more of them than `most` do.
        """
        (count, size), queries = own.shape, slice(first, first + len(own))
        places = np.arange(min(self.count[queries].max(), self.most[queries].max()))
        kept = self.scores.take(self.first[queries, None] + places, mode="clip")
        # Where scores were lost, room was left that nobody wrote to: what it holds may not even be a number.
        complete = self.count[queries] <= self.most[queries]
        kept = np.where(places < np.where(complete, self.count[queries], 0)[:, None], kept, BELOW_ALL)
        # Own keys are odd and negative keys are even: after the sort, the lowest bit tells which of the two each is.
        keys = np.concatenate([even_keys(own) + 1, even_keys(kept)], axis=1)
        keys[np.arange(count), np.arange(itself, itself + count)] = np.iinfo(np.int32).min
        keys.sort(axis=1)
        nearest = keys[:, : -size - 1 : -1]
        tied = (nearest[:, 1:] ^ nearest[:, :-1] == 1).any(1)
        enough = nearest[:, size - 2] >= even_keys(self.thresholds[queries])
        return (nearest[:, :-1] & 1).astype(bool), enough & ~tied & complete


def even_keys(scores: Float32[np.ndarray, "*shape"]) -> Int32[np.ndarray, "*shape"]:
    """Even whole numbers in the order of scores, which are below 2 in size: then one bit is free for doubling."""
    keys = sortable(scores)
    keys <<= 1
    return keys
