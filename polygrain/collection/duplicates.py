"""Near-duplicates of a collection, and images that are like no other, by the graph of nearest neighbours."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from polygrain.collection.postprocessing.diffusion import Shown, cosines, links, neighbours_of
from polygrain.compute.blocks import blocks_within

NEIGHBOURS = 20
BLOCK_VALUES = 2**24  # cosines held at once
MOST = 10**6  # pairs: of a thousand copies of one image there are half a million


class Pair(NamedTuple):
    """A pair of near-duplicates; or an odd image, which none of its nearest has among its own, with the nearest."""

    kind: str
    cosine: float
    image: int
    other: int


class Graph(NamedTuple):
    """The nearest others of each row, and their cosines, nearest first."""

    neighbours: Int64[np.ndarray, "row rank"]
    cosines: Float32[np.ndarray, "row rank"]

    @property
    def closest(self) -> float | None:
        """The cosine of the two rows that are most alike; None where there are no two."""
        return float(self.cosines[:, 0].max()) if self.cosines.size else None


def graph_of(vectors: Float32[np.ndarray, "row dim"], shown: Shown = iter) -> Graph:
    """The graph in which pairs and odd images are found, whatever the cosine."""
    if len(vectors) < 2:
        return Graph(np.empty((len(vectors), 0), np.int64), np.empty((len(vectors), 0), np.float32))
    neighbours = neighbours_of(vectors, min(NEIGHBOURS, len(vectors) - 1), shown)
    return Graph(neighbours, cosines(vectors, neighbours))


def duplicates(vectors: Float32[np.ndarray, "row dim"], graph: Graph, above: float) -> list[Pair]:
    """All pairs of rows from the cosine `above`, the most alike first.

    An image whose nearest are all that alike is compared with every other; from `MOST` pairs on no more are looked for.
    """
    alike, pairs = graph.cosines >= above, {}
    # A pair stands there twice at most.
    most = np.argsort(-graph.cosines[alike], kind="stable")[: 2 * MOST]
    listed = (values[most] for values in (np.nonzero(alike)[0], graph.neighbours[alike], graph.cosines[alike]))
    for row, other, cosine in zip(*listed, strict=True):
        pairs[int(min(row, other)), int(max(row, other))] = float(cosine)
    crowded = np.flatnonzero(alike.all(1)) if alike.size else np.empty(0, np.int64)
    for part in blocks_within(len(crowded), len(vectors), BLOCK_VALUES):
        if len(pairs) >= MOST:
            break
        every = vectors[crowded[part]] @ vectors.T
        for place, other in np.argwhere(every >= above).tolist():
            row = int(crowded[part][place])
            if row != other:
                pairs.setdefault((min(row, other), max(row, other)), float(every[place, other]))
    return sorted((Pair("duplicate", value, *pair) for pair, value in pairs.items()), key=lambda row: -row.cosine)


def odd(graph: Graph) -> list[Pair]:
    """The odd images, the oddest first."""
    if not graph.cosines.size:
        return []
    alone = np.flatnonzero(links(*graph).sum(1) == 0).tolist()
    rows = [Pair("odd", float(graph.cosines[i, 0]), i, int(graph.neighbours[i, 0])) for i in alone]
    return sorted(rows, key=lambda row: row.cosine)
