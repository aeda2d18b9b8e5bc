"""The columns of the highest scores of each row, highest first, ties to the lowest column."""

import math

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from polygrain.compute.blocks import blocks_within
from polygrain.compute.sortable import sortable
from polygrain.compute.threads import threads

# Scores ranked at once: few enough for the cache, and so many that Python's own time for each part does not count.
RANKED = 2**19
# One column of so many is looked at to guess how low the k-th score is.
SAMPLED = 17


def rank(scores: Float32[Tensor, "query n"], k: int) -> Int64[Tensor, "query rank"]:
    """Columns of the k highest scores of each row, highest first, ties to the lowest column; k < n.

    A stable sort of whole rows gives the same.
    """
    if scores.device.type != "cpu":
        return rank_on_gpu(scores, k)
    parts = blocks_within(*scores.shape, RANKED)
    return torch.from_numpy(np.concatenate(list(threads().map(lambda part: rank_rows(scores[part].numpy(), k), parts))))


def rank_on_gpu(scores: Float32[Tensor, "query n"], k: int) -> Int64[Tensor, "query rank"]:
    """`rank` by `topk`, which leaves open which of equal scores it takes, and in which order."""
    values, columns = scores.topk(k + 1, dim=1)
    tied = torch.nonzero((values[:, 1:] == values[:, :-1]).any(1))[:, 0]
    if len(tied):
        ascending = columns[tied].sort(1).values
        order = scores[tied[:, None], ascending].sort(dim=1, descending=True, stable=True).indices
        columns[tied] = ascending.gather(1, order)
    cut = torch.nonzero(values[:, k - 1] == values[:, k])[:, 0]
    if len(cut):
        columns[cut] = scores[cut].sort(dim=1, descending=True, stable=True).indices[:, : k + 1]
    return columns[:, :k]


def rank_rows(scores: Float32[np.ndarray, "query n"], k: int) -> Int64[np.ndarray, "query rank"]:
    """`rank` on a processor: only scores above a threshold are sorted, which k of each row reach and few more.

    What is sorted is one whole number for score and column: the score in the upper half, the column in the lower.
    """
    count, n = scores.shape
    reached, counts = above(scores, likely(scores, k))
    if counts.min() < k:
        reached, counts = above(scores, certain(scores, k))
    keys = sortable(scores.ravel().take(reached)).astype(np.int64)
    keys <<= 32
    np.subtract(reached, keys, out=keys)  # the highest score comes first, and of equal ones the lowest column
    packed = np.full((count, counts.max()), np.iinfo(np.int64).max)
    packed[np.arange(packed.shape[1]) < counts[:, None]] = keys
    packed.sort(axis=1)
    return (packed[:, :k] & 0xFFFFFFFF) - np.arange(0, count * n, n)[:, None]


def above(
    scores: Float[np.ndarray, "query n"], thresholds: Float[np.ndarray, "query 1"]
) -> tuple[Int64[np.ndarray, " place"], Int64[np.ndarray, " query"]]:
    """The places, counted through all rows, of scores that reach their row's threshold; how many there are a row."""
    count, n = scores.shape
    reached = np.flatnonzero(scores >= thresholds)
    return reached, np.diff(np.searchsorted(reached, np.arange(count + 1) * n))


def certain(scores: Float[np.ndarray, "query n"], k: int) -> Float[np.ndarray, "query 1"]:
    """A threshold that k scores of each row reach for sure: the k-th highest of the maxima of groups of columns."""
    count, n = scores.shape
    group = max(1, min(64, n // (2 * k)))
    # Columns of a group lie `width` apart, which is made odd. Where images go round their classes, an even step could
    # put all high scores into few groups, and the threshold would be far too low.
    width = n // group
    width -= group > 1 and width % 2 == 0
    maxima = scores[:, : group * width].reshape(count, group, width).max(1)
    maxima.partition(width - k, axis=1)
    return maxima[:, width - k, None]


def likely(scores: Float32[np.ndarray, "query n"], k: int) -> Float32[np.ndarray, "query 1"]:
    """A higher threshold that k scores of each row almost certainly reach.

    It is estimated from a sample of the columns, three standard deviations on the safe side. Where k is too small for
    a sample, it is the certain one.
    """
    sample = scores[:, ::SAMPLED]
    wanted = k * sample.shape[1] / scores.shape[1]
    place = sample.shape[1] - math.ceil(wanted + 3 * math.sqrt(wanted))
    if wanted < 20 or place < 0:
        return certain(scores, k)
    sample = np.partition(sample, place, axis=1)
    return sample[:, place, None]
