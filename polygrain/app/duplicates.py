"""Near-duplicates of a collection, and images that are like no other, by the graph of nearest neighbours."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from polygrain.retrieval.smoothing import Shown, cosines, links, neighbours_of

# Of a larger group of duplicates some pairs are missing.
NEIGHBOURS = 20


class Row(NamedTuple):
    """A pair of near-duplicates; or an odd image, which none of its nearest has among its own, with the nearest."""

    kind: str
    cosine: float
    image: int
    other: int


def find(vectors: Float32[np.ndarray, "row dim"], above: float, shown: Shown = iter) -> list[Row]:
    """All pairs of rows from the cosine `above`, the most alike first; then the odd images, the oddest first."""
    if len(vectors) < 2:
        return []
    neighbours = neighbours_of(vectors, min(NEIGHBOURS, len(vectors) - 1), shown)
    similar = cosines(vectors, neighbours)
    alike = similar >= above
    pairs = {}
    for row, other, cosine in zip(np.nonzero(alike)[0], neighbours[alike], similar[alike], strict=True):
        pairs[int(min(row, other)), int(max(row, other))] = float(cosine)
    odd = np.flatnonzero(links(neighbours, similar).sum(1) == 0)
    duplicates = [Row("duplicate", value, i, j) for (i, j), value in pairs.items()]
    alone = [Row("odd", float(similar[i, 0]), i, int(neighbours[i, 0])) for i in odd.tolist()]
    return sorted(duplicates, key=lambda row: -row.cosine) + sorted(alone, key=lambda row: row.cosine)
