"""The columns of the highest scores of each row, highest first, ties to the lowest column."""

import math

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from stages.core.compute.blocks import blocks_within
from stages.core.compute.threads import threads

# Scores ranked at once: few enough for the cache, and many enough that what Python does for each part does not count.
RANKED = 2**19
# One column of so many is looked at to guess how low the k-th score is.
SAMPLED = 17


def rank(scores: Float32[Tensor, "query n"], k: int) -> Int64[Tensor, "query rank"]:
    """Columns of the k highest scores of each row, highest first, ties to the lowest column; k < n.

    A stable sort of whole rows gives the same.
    """
    if scores.device.type == "cpu":
        parts = blocks_within(*scores.shape, RANKED)
        return torch.from_numpy(
            np.concatenate(list(threads().map(lambda part: rank_rows(scores[part].numpy(), k), parts)))
        )
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
    """`rank` on a processor: what k scores reach at least, and few more, is packed and sorted.

    A packed score is a whole number that has the column in its lower half, and orders as wanted.
    """
    count, n = scores.shape
    reached = np.flatnonzero(scores >= likely(scores, k))
    counts = np.diff(np.searchsorted(reached, np.arange(count + 1) * n))
    if counts.min() < k:
        reached = np.flatnonzero(scores >= certain(scores, k))
        counts = np.diff(np.searchsorted(reached, np.arange(count + 1) * n))
    bits = scores.ravel().take(reached)
    bits += np.float32(0)  # minus zero equals zero
    bits = bits.view(np.int32)
    # The bits of floats order as whole numbers do, but for negative ones, whose order is reversed.
    bits ^= (bits >> 31) & 0x7FFFFFFF
    keys = bits.astype(np.int64)
    keys <<= 32
    np.subtract(reached, keys, out=keys)
    packed = np.full((count, counts.max()), np.iinfo(np.int64).max)
    packed[np.arange(packed.shape[1]) < counts[:, None]] = keys
    packed.sort(axis=1)
    return (packed[:, :k] & 0xFFFFFFFF) - np.arange(0, count * n, n)[:, None]


def certain(scores: Float32[np.ndarray, "query n"], k: int) -> Float32[np.ndarray, "query 1"]:
    """What k scores of each row reach for sure: the k-th highest of the maxima of groups of columns."""
    count, n = scores.shape
    group = max(1, min(64, n // (2 * k)))
    # An odd step from one column of a group to the next, since data sets that go round their classes like even ones.
    width = n // group
    width -= group > 1 and width % 2 == 0
    maxima = scores[:, : group * width].reshape(count, group, width).max(1)
    maxima.partition(width - k, axis=1)
    return maxima[:, width - k, None]


def likely(scores: Float32[np.ndarray, "query n"], k: int) -> Float32[np.ndarray, "query 1"]:
    """What k scores of each row reach almost certainly, judged by a sample where k is large enough for one."""
    sample = scores[:, ::SAMPLED]
    wanted = k * sample.shape[1] / scores.shape[1]
    place = sample.shape[1] - math.ceil(wanted + 3 * math.sqrt(wanted))
    if wanted < 20 or place < 0:
        return certain(scores, k)
    sample = np.partition(sample, place, axis=1)
    return sample[:, place, None]
