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
    path: str
    other: str


def find(paths: list[str], vectors: Float32[np.ndarray, "row dim"], above: float, shown: Shown = iter) -> list[Row]:
    """All pairs from the cosine `above`, the most alike first; then the odd images, the oddest first."""
    if len(paths) < 2:
        return []
    neighbours = neighbours_of(vectors, min(NEIGHBOURS, len(paths) - 1), shown)
    similar = cosines(vectors, neighbours)
    alike = similar >= above
    pairs = {}
    for row, other, cosine in zip(np.nonzero(alike)[0], neighbours[alike], similar[alike], strict=True):
        pairs[min(row, other), max(row, other)] = float(cosine)
    odd = np.flatnonzero(links(neighbours, similar).sum(1) == 0)
    duplicates = [Row("duplicate", value, paths[i], paths[j]) for (i, j), value in pairs.items()]
    alone = [Row("odd", float(similar[i, 0]), paths[i], paths[neighbours[i, 0]]) for i in odd]
    return sorted(duplicates, key=lambda row: -row.cosine) + sorted(alone, key=lambda row: row.cosine)
