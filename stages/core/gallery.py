"""Images that are ranked by their cosine to each other, in the way that is quickest for their number and the depth."""

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from stages.core.device import has_bfloat16
from stages.core.ranking import rank, rank_parts
from stages.core.shortlist import Shortlist
from stages.core.similarities import similarities
from stages.core.vectors import CELLS

# Similarities of a set are held all at once up to this many: 2 GiB, for 23,170 images.
WHOLE = 2**29
# Rankings to this share of all images begin with a shortlist.
SHALLOW = 2**-8


class Gallery:
    """Rows `n d` of unit length (or zero); `cells` bounds the similarities held at once, `step` the rows ranked so.

    Where all similarities may be held, each pair is multiplied once. Beyond that a few nearest come from a shortlist,
    and only deep rankings need all products in float32.
    """

    def __init__(self, x: Float32[Tensor, "n d"], cells: int = WHOLE) -> None:
        n, on_processor = len(x), x.device.type == "cpu"
        self.x, self.step = x, min(n, max(1, min(cells, CELLS) // n))
        self.whole = similarities(x) if on_processor and n * n <= cells else None
        self.shortlist = None
        if on_processor and self.whole is None and has_bfloat16(x.device):
            self.shortlist = Shortlist(x)
        # One array for all products: fresh memory costs as much as the products themselves.
        self.room = x.new_empty((0, n))
        self.again: Int64[Tensor, "pair row"] | None = None

    def ranked(self, rows: Int64[Tensor, " query"], k: int) -> Int64[Tensor, "query rank"]:
        """The k nearest others of at most `step` rows, nearest first, ties to the lowest index; 0 < k < n."""
        if self.shortlist is not None and k <= SHALLOW * len(self.x):
            ranked = self.shortlist.nearest(rows, k)
            if ranked is not None:
                return ranked
        # Rounding depends on the place of a row in a matrix product: equal rows take the score of the first of them.
        self.again = repeats(self.x) if self.again is None else self.again
        if self.whole is not None:
            return rank_parts(lambda part: self.look(rows[part].numpy()), len(rows), len(self.x), k)
        if not len(self.room):
            self.room = self.x.new_empty((self.step, len(self.x)))
        scores = torch.mm(self.x[rows], self.x.T, out=self.room[: len(rows)])
        scores[:, self.again[0]] = scores[:, self.again[1]]
        scores[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        return rank(scores, k)

    def look(self, rows: Int64[np.ndarray, " query"]) -> Float32[np.ndarray, "query n"]:
        """The scores of a few rows out of all similarities."""
        scores = self.whole.numpy().take(rows, axis=0)
        again, first = self.again.numpy()
        scores[:, again] = scores[:, first]
        scores[np.arange(len(rows)), rows] = -np.inf
        return scores


def repeats(vectors: Float32[Tensor, "n d"]) -> Int64[Tensor, "pair row"]:
    """The rows that equal an earlier one, and the first one that each of them equals."""
    seen: dict[bytes, int] = {}
    rows = vectors.cpu().numpy() + np.float32(0)  # minus zero equals zero
    first = torch.tensor([seen.setdefault(row.tobytes(), i) for i, row in enumerate(rows)])
    again = torch.nonzero(first != torch.arange(len(rows)))[:, 0]
    return torch.stack([again, first[again]]).to(vectors.device)
