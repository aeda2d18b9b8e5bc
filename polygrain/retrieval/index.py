"""A gallery of images that are ranked by their cosine to each other, by the quicker of two ways.

A few nearest come from a shortlist, where products in half precision are quick. Deep rankings need all products, in
float32.
"""

from functools import cached_property

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from polygrain.compute.device import has_bfloat16
from polygrain.compute.vectors import CELLS
from polygrain.retrieval.ranking import rank
from polygrain.retrieval.shortlist import Shortlist

# Products with fewer rows at once read all of x for little work: so many are ranked at once, as long as their scores
# are no more than `MOST`, 1 GiB of float32. Memory never grows with the square of n.
ROWS, MOST = 256, 2**28
# Rankings to this share of all images begin with a shortlist.
SHALLOW = 2**-8


class Index:
    """Rows `n d` of unit length (or zero); at most `step` of them may be ranked at once."""

    def __init__(self, x: Float32[Tensor, "n d"]) -> None:
        n = len(x)
        self.x, self.step = x, min(n, max(1, CELLS // n, min(ROWS, MOST // n)))
        # One array for all products: fresh memory costs as much as the products themselves.
        self.buffer = x.new_empty((0, n))

    @cached_property
    def shortlist(self) -> Shortlist | None:
        return Shortlist(self.x) if self.x.device.type == "cpu" and has_bfloat16(self.x.device) else None

    @cached_property
    def duplicates(self) -> Int64[Tensor, "pair row"]:
        return duplicates(self.x)

    def ranked(self, rows: Int64[Tensor, " query"], k: int) -> Int64[Tensor, "query rank"]:
        """The k nearest others of at most `step` rows, nearest first, ties to the lowest index; 0 < k < n."""
        if k <= SHALLOW * len(self.x) and self.shortlist is not None:
            ranked = self.shortlist.nearest(rows, k)
            if ranked is not None:
                return ranked
        if len(self.buffer) < len(rows):
            self.buffer = self.x.new_empty((len(rows), len(self.x)))
        scores = torch.mm(self.x[rows], self.x.T, out=self.buffer[: len(rows)])
        # A matrix product rounds equal rows differently, by their place in it: they all take the score of the first.
        later, first = self.duplicates
        scores[:, later] = scores[:, first]
        scores[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        return rank(scores, k)


def duplicates(vectors: Float32[Tensor, "n d"]) -> Int64[Tensor, "pair row"]:
    """The rows that equal an earlier one, and for each of them the first row that it equals."""
    rows = vectors + 0  # minus zero equals zero
    # A cheap hash first: the bits of some values, added up. Only rows that share it are compared byte by byte.
    some = rows[:, :: max(1, rows.shape[1] // 16)].contiguous().view(torch.int32)
    _, which, counts = some.sum(1).unique(return_inverse=True, return_counts=True)
    alike = torch.nonzero(counts[which] > 1)[:, 0]
    seen: dict[bytes, int] = {}
    first = [
        seen.setdefault(row.tobytes(), i) for i, row in zip(alike.tolist(), rows[alike].cpu().numpy(), strict=True)
    ]
    first = torch.tensor(first, dtype=torch.int64, device=alike.device)
    return torch.stack([alike, first])[:, first != alike]
