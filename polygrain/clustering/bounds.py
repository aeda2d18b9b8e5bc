"""Nearest centroids while centroids move: what provably cannot change is not compared again (Hamerly, 2010).

Every point keeps an upper bound of the distance to its own centroid and a lower bound of the distance to all others.
When centroids move, the bounds move by as much. A point whose upper bound stays below its lower one keeps its label.
Where only some centroids moved, the screen's products with these settle most other points, and renew their bounds, too.
"""

import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from polygrain.clustering.screen import Screen
from polygrain.compute.vectors import squared_distances

# Distances come from differences in float32, and bounds are sums of them: one decides only by more than this share.
SLACK = 1e-6
# Moved centroids that are met by products before any distance is computed: with more, distances are the cheaper.
FEW = 512


class HamerlyBounds:
    """Lloyd's labels of the rows of a screen, and both bounds of every point.

    `nearest` promises that each label names the nearest centroid; without it no lower bound is known.
    """

    def __init__(self, screen: Screen, centroids: Tensor, labels: Tensor, nearest: bool) -> None:
        x = screen.x
        self.x, self.screen, self.labels = x, screen, labels
        self.centroids = centroids.clone()
        self.upper = squared_distances(x, screen.everyone, centroids, labels).sqrt()
        # All other centroids are at least as far as the nearest.
        self.lower = self.upper.clone() if nearest else torch.full_like(self.upper, -torch.inf)

    def forget(self, rows: Int64[Tensor, " row"]) -> None:
        """Drops what is known of these points, whose labels were changed from outside."""
        self.lower[rows] = -torch.inf
        self.upper[rows] = torch.inf

    def reassign(self, centroids: Float32[Tensor, "k d"]) -> None:
        """Labels every point with its nearest centroid, ties to the lowest index."""
        clusters = torch.arange(len(centroids), device=self.x.device)
        drift = squared_distances(centroids, clusters, self.centroids, clusters).sqrt()
        moved = torch.nonzero(drift)[:, 0]
        self.centroids = centroids.clone()
        shrunk, before = self.lower - drift.max(), self.upper
        self.upper = before + drift[self.labels]
        rows = torch.nonzero(self.upper * (1 + SLACK) >= shrunk)[:, 0]
        if 0 < len(moved) <= FEW:
            rows = self.screen.everyone if 2 * len(rows) > len(self.x) else rows  # all are read faster than picked
            rows = rows[~self.settle(rows, before[rows], shrunk, centroids, moved)]
        own = squared_distances(self.x, rows, centroids, self.labels[rows])
        self.upper[rows] = own.sqrt()
        undecided = self.upper[rows] * (1 + SLACK) >= shrunk[rows]
        rows, own = rows[undecided], own[undecided]
        known, self.lower = self.lower[rows], shrunk
        # Centroids at rest are as far as before: `known` at least. They need no comparison where the own centroid is
        # nearer than that, or where it rests too, and so still wins. Other points meet all centroids again.
        all_again = (self.upper[rows] * (1 + SLACK) >= known) & ((drift[self.labels[rows]] > 0) | torch.isinf(known))
        # Nothing is nearer than distance 0, so a point on its own centroid stays. A moved centroid may tie with a lower
        # index: only one that equals the point, which its first coordinate must do too.
        stays = ~all_again & (own == 0) & ~torch.isin(self.x[rows, 0], centroids[moved, 0])
        self.lower[rows[stays]] = 0
        some_again = ~all_again & ~stays
        unbounded = torch.full_like(known[all_again], torch.inf)
        self.compare(rows[all_again], own[all_again], centroids, clusters, unbounded)
        self.compare(rows[some_again], own[some_again], centroids, moved, known[some_again])

    def settle(
        self,
        rows: Int64[Tensor, " row"],
        before: Float64[Tensor, " row"],
        shrunk: Float64[Tensor, " n"],
        centroids: Float32[Tensor, "k d"],
        moved: Int64[Tensor, " some"],
    ) -> Bool[Tensor, " row"]:
        """Which rows keep their labels by the screen's products with the `moved` centroids alone; sets their bounds.

        `before`: the rows' distances to their own centroids before these moved. New lower bounds go to `shrunk`.
        """
        own, known = self.labels[rows], self.lower[rows]
        places = torch.full((len(centroids),), -1, device=rows.device)
        places[moved] = torch.arange(len(moved), device=rows.device)
        near, far = self.screen.bracket(rows, centroids[moved], before.square(), places[own])
        upper, lower = near.sqrt(), torch.minimum(far.sqrt(), known)
        settled = upper * (1 + SLACK) < lower
        self.upper[rows[settled]], shrunk[rows[settled]] = upper[settled], lower[settled]
        return settled

    def compare(
        self,
        rows: Int64[Tensor, " row"],
        own_distances: Float64[Tensor, " row"],
        centroids: Float32[Tensor, "k d"],
        clusters: Int64[Tensor, " some"],
        others: Float64[Tensor, " row"],
    ) -> None:
        """Compares rows with these clusters, and sets their labels and bounds.

        `own_distances` are the squared distances to the own centroids, `others` lower bounds for all clusters that are
        not compared.
        """
        self.lower[rows] = others
        if not len(rows) or not len(clusters):
            return
        own = self.labels[rows]
        places = torch.full((len(centroids),), -1, device=rows.device)
        places[clusters] = torch.arange(len(clusters), device=rows.device)
        found = self.screen.within(rows, centroids[clusters], own_distances, skipped=places[own], closest=True)
        distances = own_distances.scatter_reduce(0, found.rows, found.distances, "amin")
        first = found.distances == distances[found.rows]
        # The lowest index among the nearest. Where nothing is nearer than the own cluster, that takes part in the tie.
        tied = torch.where(distances < own_distances, len(centroids), own)
        best = tied.scatter_reduce(0, found.rows[first], clusters[found.positions[first]], "amin")
        # The lower bound is the least of all that was not chosen, the former own centroid included.
        behind = torch.where(best == own, torch.inf, own_distances)
        lost = clusters[found.positions] != best[found.rows]
        behind.scatter_reduce_(0, found.rows[lost], found.distances[lost], "amin")
        self.lower[rows] = torch.minimum(others, torch.minimum(behind, found.beyond).sqrt())
        self.upper[rows] = distances.sqrt()
        self.labels[rows] = best
