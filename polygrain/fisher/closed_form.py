"""The last layer from clusters of many granularities, without labels, epochs or step sizes.

An adaptor of a granularity has a closed form: the scatter within its clusters (scatter.py) says which directions do not
matter there. The mean of these scatters is the average fusion, and Fisher's discriminant of total against within
scatter is the layer (layer.py). The finest granularity has an image and its views as a cluster.

`PLANS` says which clusters count, by about how many images are alike: found with labels on five tasks of photographs
and one encoder, in collections thinned to 3, 6, 12 and 30 of a kind (benchmarks/regimes.py).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32

from polygrain.compute.blocks import Rows, blocks_within
from polygrain.compute.principal import largest, principal_components
from polygrain.fisher.layer import Kind, axes
from polygrain.fisher.scatter import CELLS, Scatter, average, of_equal_size, within_clusters
from polygrain.retrieval.whitening import Whitening

# Images of a cluster, one granularity each.
SIZES = (2, 3, 4, 6, 8, 12, 16, 24)
# Principal axes in which scatters are taken, at most.
AXES = 512
# n images in n // size clusters have a little more than `size` each.
ROUNDED = 1.1


class Plan(NamedTuple):
    """Which clusters make the layer: their sizes (up to the largest), whether views of an image count, the form, the
    least shrinkage."""

    sizes: tuple[float, ...]
    views: bool
    kind: Kind
    least: float


class Basis(NamedTuple):
    """The principal axes of rows, each task's less its own mean; `variances` along them, and the mean of all rows."""

    mean: Float[np.ndarray, " dim"]
    axes: Float[np.ndarray, "dim axis"]
    variances: Float[np.ndarray, " axis"]

    def turn(self, rows: Float32[np.ndarray, "row dim"]) -> Float[np.ndarray, "row axis"]:
        """Rows along these axes, not centred."""
        return rows.astype(np.float64) @ self.axes


# From so many images that are alike on.
PLANS = {
    0: Plan((2, 3, 4), True, "flat", 0.0),
    5: Plan((2, 3, 4), True, "weighted", 0.0),
    20: Plan(SIZES, True, "weighted", 0.0),
}
# The same where there are vectors alone: each of five tasks as a collection of its own, and all as one.
WITHOUT_VIEWS = {
    0: Plan(SIZES, False, "weighted", 0.5),
    2: Plan((2, 3, 4), False, "weighted", 0.8),
    10: Plan(SIZES, False, "weighted", 0.5),
    20: Plan(SIZES, False, "weighted", 0.0),
}


def plan_of(alike: int | None, plans: Mapping[int, Plan] = PLANS) -> Plan:
    """The plan for about so many images alike; for None the one that harms no collection."""
    return plans[max(least for least in plans if least <= (alike or 0))]


class Centred:
    """Rows read by slices, each less the mean of its task."""

    def __init__(self, rows: Rows, tasks: np.ndarray) -> None:
        self.rows, self.shape = rows, rows.shape
        _, self.owners, sizes = np.unique(tasks, return_inverse=True, return_counts=True)
        sums = torch.zeros((len(sizes), self.shape[1]), dtype=torch.float64)
        for part in blocks_within(self.shape[0], self.shape[1], CELLS):
            block = np.array(rows[part], np.float64)
            sums.index_add_(0, torch.from_numpy(self.owners[part]), torch.from_numpy(block))
        self.means, self.share = sums.numpy() / sizes[:, None], sizes / len(tasks)

    def __getitem__(self, part: slice | np.ndarray) -> Float32[np.ndarray, "row dim"]:
        return (np.asarray(self.rows[part]) - self.means[self.owners[part]]).astype(np.float32)


def basis_of(rows: Rows, tasks: np.ndarray, most: int = AXES) -> Basis | None:
    """The basis of rows `row dim` of unit length; None where they do not vary."""
    if min(rows.shape[0], largest(rows)) < 1:
        return None
    centred = Centred(rows, tasks)
    found = principal_components(centred, min(most, largest(rows)))
    varied = found.energies > 0
    if not varied.any():
        return None
    return Basis(centred.share @ centred.means, found.axes[:, varied], found.energies[varied] / rows.shape[0])


def closed_form(
    basis: Basis, clusters: Mapping[float, Scatter] | Mapping[int, Scatter], views: Scatter | None, plan: Plan
) -> Whitening:
    """The layer by a plan, from the scatter of clusters of each size, and that of views, in the axes of the basis.

    What the plan asks for and is not there is left out; without any scatter the layer half-whitens.
    """
    largest_size = max(plan.sizes, default=0) * ROUNDED
    known = [scatter for size, scatter in clusters.items() if size <= largest_size and scatter.degrees]
    scatters = [average(known)] if known else []
    if plan.views and views is not None and views.degrees:
        scatters.append(of_equal_size(scatters[0], views) if known else views)
    if not scatters:
        return Whitening(basis.mean.astype(np.float32), (basis.axes * basis.variances**-0.25).astype(np.float32))
    scatter = average(scatters)
    projection = basis.axes @ axes(np.diag(basis.variances), scatter, plan.kind, plan.least)
    return Whitening(basis.mean.astype(np.float32), projection.astype(np.float32))


def of_views(basis: Basis, views: Float32[np.ndarray, "image view dim"]) -> Scatter:
    """The scatter of images within their views."""
    images, count, _ = views.shape
    return within_clusters(basis.turn(views.reshape(images * count, -1)), np.repeat(np.arange(images), count))


def counts(sizes: Sequence[int], images: int) -> dict[int, int]:
    """The number of clusters of each size that so many images allow: two clusters at least."""
    return {size: images // size for size in sizes if images // size >= 2}
