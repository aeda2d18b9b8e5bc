"""Which centroids can be as near to a row as a known limit: half-precision products sort out nearly all of them.

One matrix product in bfloat16 (twice as fast as float32 on processors that have it) gives, for every row and centroid,
the squared distance minus the row's limit. Only what is not positive beyond the proven rounding error is a candidate,
and distances from differences decide about candidates. So what comes out is exact: it depends neither on the precision
of the products nor on the blocks, the device or the number of threads and processes.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from stages.core.compute import device, processes
from stages.core.compute.blocks import blocks_within
from stages.core.compute.vectors import CELLS, PAIRS, squared_distances

# Columns that carry numbers a single half cannot hold: three for a centroid's norm, three for what a row adds.
EXTRA = 6
# Products held at once: they stay in the processor's cache, and a reduction over them costs little.
TILE, COLUMNS = 2**21, 2048


@dataclass(frozen=True)
class Survivors:
    """Pairs within the limit, ordered by row; `beyond`: what bounds from below the distance to all other centroids."""

    rows: Int64[Tensor, " pair"]
    positions: Int64[Tensor, " pair"]
    distances: Float64[Tensor, " pair"]
    beyond: Float64[Tensor, " row"]


def split(values: Float64[Tensor, " n"], dtype: torch.dtype) -> list[Tensor]:
    """Three numbers of low precision whose sum is the value, but for 2^-24 of it."""
    parts = []
    for _ in range(3):
        parts.append(values.to(dtype))
        values = values - parts[-1].double()
    return parts


class Screen:
    """The rows as they are multiplied: shifted to their mean, where products are smallest, and rounded."""

    def __init__(self, x: Float32[Tensor, "n d"], dtype: torch.dtype | None = None) -> None:
        # A GPU may add partial sums in bfloat16, against which no bound is proven here.
        halved = x.device.type == "cpu" and device.has_bfloat16(x.device)
        self.x, self.dtype = x, dtype or (torch.bfloat16 if halved else torch.float32)
        self.rounding = 2.0**-8 if self.dtype == torch.bfloat16 else 2.0**-23
        self.shift = x.mean(0)
        self.halves, self.norms, self.lost = self.rounded(x, 1)
        self.halves[:, x.shape[1] : x.shape[1] + 3] = 1

    def rounded(self, vectors: Tensor, factor: int) -> tuple[Tensor, Float64[Tensor, " row"], Float64[Tensor, " row"]]:
        """`factor` times the shifted vectors, rounded; their squared norms; the norms of what rounding lost."""
        n, d = vectors.shape
        halves = torch.zeros((n, -(-(d + EXTRA) // 8) * 8), dtype=self.dtype, device=vectors.device)
        norms, lost = torch.empty((2, n), dtype=torch.float64, device=vectors.device)
        for part in blocks_within(n, d, PAIRS):
            moved = vectors[part] - self.shift
            half = moved.to(self.dtype)
            halves[part, :d] = factor * half
            norms[part] = moved.double().square_().sum(1)
            lost[part] = moved.sub_(half).double().square_().sum(1).sqrt_()
        return halves, norms, lost

    def factors(self, centroids: Float32[Tensor, "k d"]) -> tuple[Tensor, Float64[Tensor, " k"], Float64[Tensor, " k"]]:
        """The centroids as the rows are multiplied with; their squared norms; the norms of what rounding lost."""
        halves, norms, lost = self.rounded(centroids, -2)
        d = centroids.shape[1]
        halves[:, d : d + 3] = torch.stack(split(norms, self.dtype), 1)
        halves[:, d + 3 : d + EXTRA] = 1
        return halves, norms, lost

    def block(self, rows: Int64[Tensor, " row"], limits: Float64[Tensor, " row"]) -> Tensor:
        """The rows as the centroids are multiplied with: the product is the squared distance less the limit."""
        d = self.x.shape[1]
        block = self.halves.index_select(0, rows)
        block[:, d + 3 : d + EXTRA] = torch.stack(split(self.norms[rows] - limits, self.dtype), 1)
        return block

    def runners_up(
        self, labels: Int64[Tensor, " n"], centroids: Float32[Tensor, "k d"]
    ) -> tuple[Int64[Tensor, " n"], Float64[Tensor, " n"]]:
        """About the nearest centroid but the own one of every row, and how much its squared distance is larger."""
        k, mine = len(centroids), processes.share(len(labels))
        halves = self.factors(centroids)[0]
        seconds, found = [labels[:0]], [self.norms[:0]]
        for part in blocks_within(mine.stop - mine.start, max(k, len(halves[0])), CELLS):
            rows = torch.arange(part.start + mine.start, part.stop + mine.start, device=labels.device)
            tile = self.block(rows, squared_distances(self.x, rows, centroids, labels[rows])) @ halves.T
            tile[rows - rows[0], labels[rows]] = torch.inf
            least, position = tile.min(1)
            seconds.append(position)
            found.append(least.double().clamp_min(0))
        return processes.gather(torch.cat(seconds)), processes.gather(torch.cat(found))

    def within(
        self,
        rows: Int64[Tensor, " row"],
        centroids: Float32[Tensor, "k d"],
        limits: Float64[Tensor, " row"],
        *,
        skipped: Int64[Tensor, " row"] | None = None,
        closest: bool = False,
        cells: int = CELLS,
    ) -> Survivors:
        """The centroids whose squared distance to x[rows] is at most the limit, but for the `skipped` one (or -1).

        With `closest` only those that may be the nearest of all are kept, ties among them. Each process compares a part
        of the rows; all of them get the whole answer.
        """
        k, d = centroids.shape
        halves, norms, lost = self.factors(centroids)
        largest, most_lost = norms.max().sqrt(), lost.max()
        columns, mine = min(k, COLUMNS), processes.share(len(rows))
        found, beyond = [], torch.full((len(rows),), torch.inf, dtype=torch.float64, device=rows.device)
        for part in blocks_within(mine.stop - mine.start, max(columns, d), min(cells, TILE)):
            part = slice(part.start + mine.start, part.stop + mine.start)
            which, limit = rows[part], limits[part]
            block, own = self.block(which, limit), self.norms[which]
            # Rounded inputs by Cauchy and Schwarz; sums of d products in any order, however they are rounded; and what
            # falls below the smallest normal number.
            norm = own.sqrt()
            error = 2 * (self.lost[which] * largest + norm * (1 + self.rounding) * most_lost)
            error += (d + 16) * (2.0**-23 * ((norm + largest) ** 2 + own + limit) + 2.0**-120)
            for first in range(0, k, columns):
                tile = block @ halves[first : first + columns].T
                if skipped is not None:
                    place = skipped[part] - first
                    inside = torch.nonzero((place >= 0) & (place < tile.shape[1]))[:, 0]
                    tile[inside, place[inside]] = torch.inf
                hits, j, least = self.pick(tile, error, closest)
                distances = squared_distances(self.x, which[hits], centroids, first + j)
                inside = distances <= limit[hits]
                least = (limit + least).scatter_reduce(0, hits[~inside], distances[~inside], "amin")
                beyond[part] = torch.minimum(beyond[part], least)
                found.append(torch.stack([part.start + hits[inside], first + j[inside]]))
                found.append(distances[inside])
        empty = torch.empty((2, 0), dtype=torch.int64, device=rows.device)
        pairs = processes.gather(torch.cat([empty, *found[::2]], 1).T).T
        distances = processes.gather(torch.cat([empty[0].double(), *found[1::2]]))
        order = torch.argsort(pairs[0] * k + pairs[1])
        beyond = processes.gather(beyond[mine]).clamp_min_(0)
        return Survivors(pairs[0, order], pairs[1, order], distances[order], beyond)

    def pick(
        self, tile: Tensor, error: Float64[Tensor, " row"], closest: bool
    ) -> tuple[Int64[Tensor, " hit"], Int64[Tensor, " hit"], Float64[Tensor, " row"]]:
        """Rows and columns of the candidates, and a bound from below for what is none, each less the row's limit."""
        least = tile.amin(1).double()
        reach = error * (1 + self.rounding)
        bound = least - least.abs() * self.rounding - error
        rows = torch.nonzero(least <= reach)[:, 0]
        if not len(rows):
            return rows, rows, bound
        chosen, reach = tile[rows], reach[rows]
        if closest:
            nearest = least[rows] + least[rows].abs() * self.rounding + 2 * error[rows]
            reach = torch.minimum(reach, nearest + nearest.abs() * self.rounding)
        # A half above the reach is no candidate; the reach is rounded up to a half for the comparison.
        edge = reach.to(self.dtype)
        edge = torch.where(edge.double() < reach, torch.nextafter(edge, torch.full_like(edge, torch.inf)), edge)
        i, j = torch.nonzero(chosen <= edge[:, None], as_tuple=True)
        chosen[i, j] = torch.inf
        rest = chosen.amin(1).double()
        bound[rows] = torch.where(torch.isinf(rest), rest, rest - rest.abs() * self.rounding - error[rows])
        return rows[i], j, bound
