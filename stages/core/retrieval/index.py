"""Images that are ranked by their cosine to each other, in the way that is quickest for their number and the depth."""

from functools import cached_property

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from stages.core.compute.device import has_bfloat16
from stages.core.compute.vectors import CELLS
from stages.core.retrieval.ranking import rank
from stages.core.retrieval.shortlist import Shortlist

# Rankings to this share of all images begin with a shortlist.
SHALLOW = 2**-8


class Index:
    """Rows `n d` of unit length (or zero); `cells` bounds the similarities held at once, `step` the rows ranked so.

    A few nearest come from a shortlist where products in half precision are quick; deep rankings need all in float32.
    """

    def __init__(self, x: Float32[Tensor, "n d"], cells: int = CELLS) -> None:
        n = len(x)
        self.x, self.step = x, min(n, max(1, min(cells, CELLS) // n))
        # One array for all products: fresh memory costs as much as the products themselves.
        self.room = x.new_empty((0, n))

    @cached_property
    def shortlist(self) -> Shortlist | None:
        return Shortlist(self.x) if self.x.device.type == "cpu" and has_bfloat16(self.x.device) else None

    @cached_property
    def again(self) -> Int64[Tensor, "pair row"]:
        return repeats(self.x)

    def ranked(self, rows: Int64[Tensor, " query"], k: int) -> Int64[Tensor, "query rank"]:
        """The k nearest others of at most `step` rows, nearest first, ties to the lowest index; 0 < k < n."""
        if k <= SHALLOW * len(self.x) and self.shortlist is not None:
            ranked = self.shortlist.nearest(rows, k)
            if ranked is not None:
                return ranked
        if len(self.room) < len(rows):
            self.room = self.x.new_empty((len(rows), len(self.x)))
        scores = torch.mm(self.x[rows], self.x.T, out=self.room[: len(rows)])
        # Rounding depends on the place of a row in a matrix product: equal rows take the score of the first of them.
        scores[:, self.again[0]] = scores[:, self.again[1]]
        scores[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        return rank(scores, k)


def repeats(vectors: Float32[Tensor, "n d"]) -> Int64[Tensor, "pair row"]:
    """The rows that equal an earlier one, and the first one that each of them equals."""
    rows = vectors + 0  # minus zero equals zero
    # Only rows of which some values have the same sum of bits can be equal.
    some = rows[:, :: max(1, rows.shape[1] // 16)].contiguous().view(torch.int32)
    _, which, counts = some.sum(1).unique(return_inverse=True, return_counts=True)
    alike = torch.nonzero(counts[which] > 1)[:, 0]
    seen: dict[bytes, int] = {}
    first = [
        seen.setdefault(row.tobytes(), i) for i, row in zip(alike.tolist(), rows[alike].cpu().numpy(), strict=True)
    ]
    first = torch.tensor(first, dtype=torch.int64, device=alike.device)
    return torch.stack([alike, first])[:, first != alike]
