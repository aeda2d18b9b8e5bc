"""Nearest centroids while centroids move: what provably cannot change is not compared again.

Every point keeps an upper bound of the distance to its own centroid and a lower bound for all others (Hamerly, 2010),
and is compared with the moved centroids alone where the others are known to be farther.
"""

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from stages.core.clustering.screen import Screen
from stages.core.compute.vectors import squared_distances

# Distances come from differences in float32, and bounds are sums of them: one decides only by more than this share.
SLACK = 1e-6


class Bounds:
    """Lloyd's labels; for every point an upper bound of the distance to its centroid, a lower one for all others."""

    def __init__(self, screen: Screen, centroids: Tensor, labels: Tensor, nearest: bool, cells: int) -> None:
        x = screen.x
        self.x, self.screen, self.compared, self.labels, self.cells = x, screen, centroids.clone(), labels, cells
        self.everyone = torch.arange(len(x), device=x.device)
        self.upper = squared_distances(x, self.everyone, centroids, labels).sqrt()
        # A point's nearest centroid bounds all others too; without that promise nothing is known.
        self.lower = self.upper.clone() if nearest else torch.full_like(self.upper, -torch.inf)

    def forget(self, rows: Int64[Tensor, " row"]) -> None:
        """Drops what is known of these points, whose labels were changed from outside."""
        self.lower[rows] = -torch.inf
        self.upper[rows] = torch.inf

    def reassign(self, centroids: Float32[Tensor, "k d"]) -> None:
        """Labels every point with its nearest centroid, ties to the lowest index."""
        clusters = torch.arange(len(centroids), device=self.x.device)
        drift = squared_distances(centroids, clusters, self.compared, clusters).sqrt()
        self.compared = centroids.clone()
        shrunk = self.lower - drift.max()
        self.upper += drift[self.labels]
        rows = torch.nonzero(self.upper * (1 + SLACK) >= shrunk)[:, 0]
        own = squared_distances(self.x, rows, centroids, self.labels[rows])
        self.upper[rows] = own.sqrt()
        undecided = self.upper[rows] * (1 + SLACK) >= shrunk[rows]
        rows, own = rows[undecided], own[undecided]
        known, self.lower = self.lower[rows], shrunk
        # Centroids that rested lost against the own one before; they still do unless the own one moved away.
        farther = (self.upper[rows] * (1 + SLACK) >= known) & ((drift[self.labels[rows]] > 0) | torch.isinf(known))
        # On its centroid a point stays, unless another that moved is equal: then its first number is.
        moved = torch.nonzero(drift)[:, 0]
        stays = ~farther & (own == 0) & ~torch.isin(self.x[rows, 0], centroids[moved, 0])
        self.lower[rows[stays]] = 0
        closer = ~farther & ~stays
        unbounded = torch.full_like(known[farther], torch.inf)
        self.compare(rows[farther], own[farther], centroids, clusters, unbounded)
        self.compare(rows[closer], own[closer], centroids, moved, known[closer])

    def compare(
        self,
        rows: Int64[Tensor, " row"],
        exact: Float64[Tensor, " row"],
        centroids: Float32[Tensor, "k d"],
        clusters: Int64[Tensor, " some"],
        others: Float64[Tensor, " row"],
    ) -> None:
        """Compares rows with these clusters; `exact` is the own distance squared, `others` bounds all further ones."""
        self.lower[rows] = others
        if not len(rows) or not len(clusters):
            return
        own = self.labels[rows]
        places = torch.full((len(centroids),), -1, device=rows.device)
        places[clusters] = torch.arange(len(clusters), device=rows.device)
        found = self.screen.within(
            rows, centroids[clusters], exact, skipped=places[own], closest=True, cells=self.cells
        )
        distances = exact.scatter_reduce(0, found.rows, found.distances, "amin")
        first = found.distances == distances[found.rows]
        rivals = torch.where(distances < exact, len(centroids), own)
        best = rivals.scatter_reduce(0, found.rows[first], clusters[found.positions[first]], "amin")
        # What is left behind bounds the point from below: the former own centroid too, where the label changes.
        behind = torch.where(best == own, torch.inf, exact)
        lost = clusters[found.positions] != best[found.rows]
        behind.scatter_reduce_(0, found.rows[lost], found.distances[lost], "amin")
        self.lower[rows] = torch.minimum(others, torch.minimum(behind, found.beyond).sqrt())
        self.upper[rows] = distances.sqrt()
        self.labels[rows] = best
