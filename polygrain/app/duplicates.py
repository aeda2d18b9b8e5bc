"""Near-duplicates of a collection, and images that are like no other, by the graph of nearest neighbours."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from polygrain.compute.blocks import blocks_within
from polygrain.retrieval.smoothing import Shown, cosines, links, neighbours_of

NEIGHBOURS = 20
CELLS = 2**24  # cosines held at once
MOST = 10**6  # pairs: of a thousand copies of one image there are half a million


class Row(NamedTuple):
    """A pair of near-duplicates; or an odd image, which none of its nearest has among its own, with the nearest."""

    kind: str
    cosine: float
    image: int
    other: int


def find(vectors: Float32[np.ndarray, "row dim"], above: float, shown: Shown = iter) -> list[Row]:
    """All pairs of rows from the cosine `above`, the most alike first; then the odd images, the oddest first.

    An image whose nearest are all that alike is compared with every other; from `MOST` pairs on no more are looked for.
    """
    if len(vectors) < 2:
        return []
    neighbours = neighbours_of(vectors, min(NEIGHBOURS, len(vectors) - 1), shown)
    similar = cosines(vectors, neighbours)
    alike = similar >= above
    pairs = {}
    for row, other, cosine in zip(np.nonzero(alike)[0], neighbours[alike], similar[alike], strict=True):
        pairs[int(min(row, other)), int(max(row, other))] = float(cosine)
    crowded = np.flatnonzero(alike.all(1))
    for part in blocks_within(len(crowded), len(vectors), CELLS):
        if len(pairs) >= MOST:
            break
        every = vectors[crowded[part]] @ vectors.T
        for place, other in np.argwhere(every >= above).tolist():
            row = int(crowded[part][place])
            if row != other:
                pairs.setdefault((min(row, other), max(row, other)), float(every[place, other]))
    odd = np.flatnonzero(links(neighbours, similar).sum(1) == 0)
    duplicates = [Row("duplicate", value, i, j) for (i, j), value in pairs.items()]
    alone = [Row("odd", float(similar[i, 0]), i, int(neighbours[i, 0])) for i in odd.tolist()]
    return sorted(duplicates, key=lambda row: -row.cosine) + sorted(alone, key=lambda row: row.cosine)
