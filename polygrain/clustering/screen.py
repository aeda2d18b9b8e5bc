"""Which centroids lie within a given distance of a row: half-precision products rule out nearly all of them.

For row x with limit t and centroid c, the screen needs the sign of |x - c|^2 - t = -2 x·c + |c|^2 + (|x|^2 - t).
One matrix product gives it for every pair: rows and centroids are augmented by columns that add the last two terms.

The product is in bfloat16, which is twice as fast as float32 on processors that have it. Its rounding error is bounded.
A pair beyond the bound is ruled out; every other pair is a candidate, and its distance is computed anew from the
difference x - c. So the answer is exact. It does not depend on the precision of the products, on the blocks, on the
device, or on the number of threads. Of several processes each screens the rows of its share.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from polygrain.compute import device, processes
from polygrain.compute.blocks import blocks, blocks_within
from polygrain.compute.vectors import CELLS, PAIRS, group_sums, squared_distances

# Augmenting columns. A number is split over three of them, since one half cannot hold it: |c|^2, then |x|^2 - t.
EXTRA = 6
# Products held at once: they stay in the processor's cache, and a reduction over them costs little.
TILE, COLUMNS = 2**21, 2048
# Bytes of the rows in low precision that are kept; where they take more, each product rounds its rows anew.
KEPT = 2**28


@dataclass(frozen=True)
class Survivors:
    """Pairs of a row and a centroid within the row's limit, ordered by row, with their squared distances.

    `beyond`: a lower bound of each row's squared distance to all other centroids.
    """

    rows: Int64[Tensor, " pair"]
    positions: Int64[Tensor, " pair"]
    distances: Float64[Tensor, " pair"]
    beyond: Float64[Tensor, " row"]


@dataclass(frozen=True)
class Rounded:
    """Vectors in the screen's precision, augmented; their squared norms; the norms of what rounding took away."""

    halves: Tensor
    norms: Float64[Tensor, " row"]
    lost: Float64[Tensor, " row"]


def split(values: Float64[Tensor, " n"], dtype: torch.dtype) -> Tensor:
    """Three columns of low precision whose sum is the value, up to 2^-24 of it."""
    parts = []
    for _ in range(3):
        parts.append(values.to(dtype))
        values = values - parts[-1].double()
    return torch.stack(parts, 1)


class Screen:
    """The rows x, prepared once for many products: moved so that their mean is zero, which makes products small.

    Of several processes each has its share of `n` rows, from row `start` on.
    """

    def __init__(self, x: Float32[Tensor, "n d"], dtype: torch.dtype | None = None) -> None:
        # A GPU may add partial sums in bfloat16, and no bound is proven here for that.
        halved = x.device.type == "cpu" and device.has_bfloat16(x.device)
        self.x, self.dtype = x, dtype or (torch.bfloat16 if halved else torch.float32)
        self.rounding = 2.0**-8 if self.dtype == torch.bfloat16 else 2.0**-23
        self.n = processes.total(len(x))
        self.start = processes.share(self.n).start
        self.everyone = torch.arange(len(x), device=x.device)
        self.shift = (group_sums(x, self.everyone, torch.zeros_like(self.everyone), 1)[0] / self.n).float()
        d = x.shape[1]
        self.width = -(-(d + EXTRA) // 8) * 8
        self.kept = len(x) * self.width * self.dtype.itemsize <= KEPT
        self.rows = self.rounded(x, 1, self.kept)
        self.rows.halves[:, d : d + 3] = 1

    def rounded(self, vectors: Float32[Tensor, "n d"], factor: int, kept: bool = True) -> Rounded:
        """`factor` times the moved vectors, if they are to be kept; the augmenting columns are still zero."""
        n, d = vectors.shape
        halves = torch.zeros((n if kept else 0, self.width), dtype=self.dtype, device=vectors.device)
        norms, lost = torch.empty((2, n), dtype=torch.float64, device=vectors.device)
        for part in blocks_within(n, d, PAIRS):
            moved = vectors[part] - self.shift
            half = moved.to(self.dtype)
            if kept:
                halves[part, :d] = factor * half
            norms[part] = moved.double().square_().sum(1)
            lost[part] = moved.sub_(half).double().square_().sum(1).sqrt_()
        return Rounded(halves, norms, lost)

    def augmented_centroids(self, centroids: Float32[Tensor, "k d"]) -> Rounded:
        """The centroids as one side of the product: -2 c, |c|^2 in three columns, three ones."""
        found = self.rounded(centroids, -2)
        d = centroids.shape[1]
        found.halves[:, d : d + 3] = split(found.norms, self.dtype)
        found.halves[:, d + 3 : d + EXTRA] = 1
        return found

    def augmented_rows(self, rows: Int64[Tensor, " row"] | slice, limits: Float64[Tensor, " row"]) -> Tensor:
        """The rows as the other side: x, three ones, |x|^2 - t in three columns. It is valid until the next call."""
        d = self.x.shape[1]
        if self.kept:
            block = picked(self.rows.halves, rows)
        else:
            block = torch.zeros((len(limits), self.width), dtype=self.dtype, device=limits.device)
            block[:, :d] = picked(self.x, rows) - self.shift
            block[:, d : d + 3] = 1
        block[:, d + 3 : d + EXTRA] = split(self.rows.norms[rows] - limits, self.dtype)
        return block

    def runners_up(
        self, labels: Int64[Tensor, " n"], centroids: Float32[Tensor, "k d"], far: Float64[Tensor, " n"]
    ) -> tuple[Int64[Tensor, " n"], Float64[Tensor, " n"]]:
        """Every row's nearest centroid but its own, and how much larger than `far`, its own, that squared distance is.

        Both are as good as the screen's precision: nothing is computed anew.
        """
        k, halves = len(centroids), self.augmented_centroids(centroids).halves
        seconds, found = [labels[:0]], [self.rows.norms[:0]]
        for part in blocks_within(len(labels), max(k, self.width), CELLS):
            tile = self.augmented_rows(part, far[part]) @ halves.T
            tile[self.everyone[: len(tile)], labels[part]] = torch.inf
            least, position = tile.min(1)
            seconds.append(position)
            found.append(least.double().clamp_min(0))
        return torch.cat(seconds), torch.cat(found)

    def bracket(
        self,
        rows: Int64[Tensor, " row"],
        centroids: Float32[Tensor, "k d"],
        limits: Float64[Tensor, " row"],
        own: Int64[Tensor, " row"],
    ) -> tuple[Float64[Tensor, " row"], Float64[Tensor, " row"]]:
        """Each row's squared distance to its `own` centroid at most, and to the nearest of the others at least.

        Where `own` is -1 the limit stands for it. Bounds are the closer, the closer the limits are to what they bound.
        """
        factors, found = self.augmented_centroids(centroids), []
        for part in blocks_within(len(rows), max(centroids.shape), TILE):
            which, limit = in_a_row(rows[part]), limits[part]
            tile, error = factors.halves @ self.augmented_rows(which, limit).T, self.error(which, limit, factors)
            near, here = limit.clone(), torch.nonzero(own[part] >= 0)[:, 0]
            places = own[part][here]
            value = tile[places, here].double()
            near[here] += value + value.abs() * self.rounding + error[here]
            tile[places, here] = torch.inf
            least = tile.amin(0).double()
            far = limit + torch.where(torch.isinf(least), least, least - least.abs() * self.rounding - error)
            found.append(torch.stack([near, far]).clamp_min_(0))
        near, far = torch.cat(found, 1) if found else limits.new_empty((2, 0))
        return near, far

    def within(
        self,
        rows: Int64[Tensor, " row"],
        centroids: Float32[Tensor, "k d"],
        limits: Float64[Tensor, " row"],
        *,
        skipped: Int64[Tensor, " row"] | None = None,
        closest: bool = False,
    ) -> Survivors:
        """The centroids whose squared distance to x[rows] is at most the limit, but for the `skipped` one (or -1).

        With `closest`, only those that may be the nearest of all are kept, ties among them.
        """
        k, d = centroids.shape
        factors = self.augmented_centroids(centroids)
        pairs = [torch.empty((2, 0), dtype=torch.int64, device=rows.device)]
        distances = [torch.empty(0, dtype=torch.float64, device=rows.device)]
        beyond = torch.full((len(rows),), torch.inf, dtype=torch.float64, device=rows.device)
        for part in blocks_within(len(rows), max(min(k, COLUMNS), d), TILE):
            which, limit = rows[part], limits[part]
            block, error = self.augmented_rows(which, limit), self.error(which, limit, factors)
            for columns in blocks(k, COLUMNS):
                tile = block @ factors.halves[columns].T
                if skipped is not None:
                    leave_out(tile, skipped[part] - columns.start)
                hits, j, least = self.candidates(tile, error, closest)
                j = columns.start + j
                exact = squared_distances(self.x, which[hits], centroids, j)
                inside = exact <= limit[hits]
                least = (limit + least).scatter_reduce(0, hits[~inside], exact[~inside], "amin")
                beyond[part] = torch.minimum(beyond[part], least)
                pairs.append(torch.stack([part.start + hits[inside], j[inside]]))
                distances.append(exact[inside])
        found = torch.cat(pairs, 1)
        order = torch.argsort(found[0] * k + found[1])
        return Survivors(found[0, order], found[1, order], torch.cat(distances)[order], beyond.clamp_min_(0))

    def error(
        self, rows: Int64[Tensor, " row"] | slice, limits: Float64[Tensor, " row"], centroids: Rounded
    ) -> Float64[Tensor, " row"]:
        """How far a row's products may be from |x - c|^2 - t, before they are rounded themselves."""
        own, largest = self.rows.norms[rows], centroids.norms.max().sqrt()
        norm = own.sqrt()
        # Rounded inputs, by Cauchy and Schwarz.
        error = 2 * (self.rows.lost[rows] * largest + norm * (1 + self.rounding) * centroids.lost.max())
        # A float32 sum of d products, in any order and however it is rounded; and numbers too small to be normal ones.
        error += (self.x.shape[1] + 16) * (2.0**-23 * ((norm + largest) ** 2 + own + limits) + 2.0**-120)
        return error

    def candidates(
        self, tile: Tensor, error: Float64[Tensor, " row"], closest: bool
    ) -> tuple[Int64[Tensor, " hit"], Int64[Tensor, " hit"], Float64[Tensor, " row"]]:
        """Rows and columns of the candidates; a lower bound of |x - c|^2 - t over each row's other columns."""
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
        # Halves are compared with a half: the reach is rounded up to one, so that no candidate is missed.
        edge = reach.to(self.dtype)
        edge = torch.where(edge.double() < reach, torch.nextafter(edge, torch.full_like(edge, torch.inf)), edge)
        i, j = torch.nonzero(chosen <= edge[:, None], as_tuple=True)
        chosen[i, j] = torch.inf
        rest = chosen.amin(1).double()
        bound[rows] = torch.where(torch.isinf(rest), rest, rest - rest.abs() * self.rounding - error[rows])
        return rows[i], j, bound


def in_a_row(rows: Int64[Tensor, " row"]) -> Int64[Tensor, " row"] | slice:
    """Ascending rows as a slice where each follows the one before: what lies together need not be picked."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def picked(values: Tensor, rows: Int64[Tensor, " row"] | slice) -> Tensor:
    """The values of these rows: of a slice themselves, of others a copy."""
    return values[rows] if isinstance(rows, slice) else values.index_select(0, rows)


def leave_out(tile: Tensor, columns: Int64[Tensor, " row"]) -> None:
    """Sets one column of each row to infinity, where the tile has that column."""
    inside = torch.nonzero((columns >= 0) & (columns < tile.shape[1]))[:, 0]
    tile[inside, columns[inside]] = torch.inf
