"""The rows nearest to rows of unit length, through a shortlist: half-precision products rule out nearly all others.

A product in bfloat16 takes a third of the time of one in float32 on processors that have it. How far it may be wrong is
bounded. So every row that can be among the nearest comes on the list, and inner products in float64 decide there.
"""

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int16, Int64
from torch import Tensor

from polygrain.compute.blocks import blocks_within
from polygrain.compute.threads import threads
from polygrain.compute.vectors import PAIRS, inner_products
from polygrain.retrieval.ranking import RANKED

# Columns are filled up to a multiple of it: maxima are taken of groups of so many, and comparisons looked at by eight.
GROUP = 64
# The largest relative error of rounding to bfloat16.
ROUNDING = 2.0**-8
# A list of more than this share of all pairs is slower than float32 products of them all.
LONGEST = 2**-7


class Shortlist:
    """Rows `n d` of unit length (or zero) on a processor, rounded once for all queries."""

    def __init__(self, x: Float32[Tensor, "n d"]) -> None:
        n, d = x.shape
        self.x, self.largest = x, 0.0
        self.halves = torch.zeros((-(-n // GROUP) * GROUP, d), dtype=torch.bfloat16)
        self.lost = torch.empty(n, dtype=torch.float64)
        for part in blocks_within(n, d, PAIRS):
            half = x[part].bfloat16()
            self.halves[part] = half
            self.lost[part] = (x[part].double() - half.double()).square_().sum(1).sqrt_()
            self.largest = max(self.largest, x[part].double().square_().sum(1).max().sqrt().item())
        self.buffer = torch.empty((0, len(self.halves)), dtype=torch.bfloat16)

    def nearest(self, rows: Int64[Tensor, " query"], k: int) -> Int64[Tensor, "query rank"] | None:
        """The k rows of the largest inner product with each x[rows], itself left out, ties to the lowest index.

        None where the list would be too long to be quick: where many rows are nearly as near as the k-th, or where the
        k-th is not within a right angle. k may be up to a `GROUP`-th of n.
        """
        found = self.candidates(self, rows, rows.numpy(), k)
        if found is None:
            return None
        i, j = found
        scores = inner_products(self.x, rows[i], self.x, j).numpy()
        i = i.numpy()
        order = np.lexsort((-scores, i))
        first = np.searchsorted(i, np.arange(len(rows)))
        return j[torch.from_numpy(order[first[:, None] + np.arange(k)])]

    def candidates(
        self,
        asked: "Shortlist",
        rows: Int64[Tensor, " query"],
        itself: Int64[np.ndarray, " query"],
        k: int,
        least: Float64[np.ndarray, " query"] | None = None,
    ) -> Int64[Tensor, "pair row"] | None:
        """All pairs of a query, by its place in `rows` of the `asked` ones, and a row that can be among its k nearest.

        `itself` is the query's own row here, -1 where it is elsewhere. Where k others that reach `least` are known
        already, rows below it are no candidates, and k may be 0: then nothing else rules them out. None as `nearest`.
        """
        if len(self.buffer) < len(rows):
            self.buffer = torch.empty((len(rows), len(self.halves)), dtype=torch.bfloat16)
        products = torch.mm(asked.halves[rows], self.halves.T, out=self.buffer[: len(rows)])
        bits, error = products.view(torch.int16).numpy(), self.error(asked, rows)
        least = np.full(len(rows), -np.inf) if least is None else least
        parts = list(blocks_within(*bits.shape, 2 * RANKED))
        lists = list(threads().map(lambda part: shorten(bits[part], itself[part], error[part], k, least[part]), parts))
        if any(columns is None for columns in lists):
            return None
        found = [np.stack([part.start + i, j]) for part, (i, j) in zip(parts, lists, strict=True)]
        return torch.from_numpy(np.concatenate(found, 1))

    def error(self, asked: "Shortlist", rows: Int64[Tensor, " query"]) -> Float64[np.ndarray, " query"]:
        """How far the products of each asked row may be wrong."""
        # Rounded inputs, by Cauchy and Schwarz:
        error = asked.lost[rows] * self.largest + asked.largest * (1 + ROUNDING) * self.lost.max()
        # A float32 sum of d products, in any order and however it is rounded:
        error += (self.x.shape[1] + 16) * 2.0**-23 * asked.largest * self.largest * (1 + ROUNDING) ** 2
        return error.numpy()


def shorten(
    bits: Int16[np.ndarray, "query column"],
    itself: Int64[np.ndarray, " query"],
    error: Float64[np.ndarray, " query"],
    k: int,
    least: Float64[np.ndarray, " query"],
) -> tuple[np.ndarray, np.ndarray] | None:
    """Queries and columns of all products that can be among the k largest of their row, by row and column.

    None where they would be too many. Products come as the bits of bfloat16. Bits of positive numbers order as the
    numbers do, and those of negative ones come below them.
    """
    count, n = bits.shape
    own = np.flatnonzero(itself >= 0)
    bits[own, itself[own]] = 0
    if k:
        maxima = bits.reshape(count, GROUP, n // GROUP).max(1)
        maxima.partition(maxima.shape[1] - k, axis=1)
        # At least k products are as large as the k-th of these maxima, so their true values are no lower than it less
        # the error.
        lowest = torch.from_numpy(maxima[:, -k].astype(np.int32) << 16).view(torch.float32).double().numpy()
        least = np.maximum(least, lowest * (1 - ROUNDING) - error)
    # A product that truly reaches that may seem lower by the error once more.
    lowest = least - error
    if (lowest <= 0).any():
        return None
    # Cutting off the lower bits takes the bound down to a bfloat16. One step more makes up for its rounding to float32.
    edge = (lowest.astype(np.float32).view(np.int32) >> 16).astype(np.int16) - np.int16(1)
    reached = bits >= edge[:, None]
    # Nearly all comparisons are false: eight of them at a time are looked at as one whole number.
    eights = np.flatnonzero(reached.view(np.uint64) != 0)
    if 8 * len(eights) > max(LONGEST * count * n, 64 * k * count):
        return None
    which, place = np.nonzero(reached.reshape(-1, 8)[eights])
    return np.divmod(8 * eights[which] + place, n)
