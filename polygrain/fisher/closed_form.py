"""The last layer from clusters of many granularities, without labels, epochs or step sizes.

At one granularity the adaptor is known in closed form: directions with large scatter within clusters (scatter.py) are
noise. The mean of these scatters over granularities is the average fusion, and Fisher's discriminant of total against
within scatter is the layer (layer.py). The finest granularity has an image and its views as a cluster, and counts as
much as all others together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32

from polygrain.compute.blocks import Rows, blocks_within
from polygrain.compute.principal import largest, principal_components
from polygrain.fisher.layer import axes
from polygrain.fisher.scatter import BLOCK_VALUES, Scatter, average, of_equal_size, within_clusters
from polygrain.retrieval.whitening import Affine

# Principal axes in which scatters are taken, at most.
AXES = 512


class Basis(NamedTuple):
    """The principal axes of rows, centred task by task; `variances` along them, and the mean of all rows."""

    mean: Float[np.ndarray, " dim"]
    axes: Float[np.ndarray, "dim axis"]
    variances: Float[np.ndarray, " axis"]

    def turn(self, rows: Float32[np.ndarray, "row dim"]) -> Float[np.ndarray, "row axis"]:
        """Rows along these axes, not centred."""
        result = np.empty((len(rows), len(self.variances)))
        for part in blocks_within(len(rows), rows.shape[1], BLOCK_VALUES):
            result[part] = rows[part].astype(np.float64) @ self.axes
        return result


class Turned:
    """Rows read by slices, along the axes of a basis."""

    def __init__(self, rows: Rows, basis: Basis) -> None:
        self.rows, self.basis, self.shape = rows, basis, (rows.shape[0], len(basis.variances))

    def __getitem__(self, part: slice | np.ndarray) -> Float[np.ndarray, "row axis"]:
        return self.basis.turn(np.asarray(self.rows[part]))


class Centred:
    """Rows read by slices, from each of which the mean of its task is subtracted."""

    def __init__(self, rows: Rows, tasks: np.ndarray) -> None:
        self.rows, self.shape = rows, rows.shape
        _, self.owners, sizes = np.unique(tasks, return_inverse=True, return_counts=True)
        sums = torch.zeros((len(sizes), self.shape[1]), dtype=torch.float64)
        for part in blocks_within(self.shape[0], self.shape[1], BLOCK_VALUES):
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


def closed_form(basis: Basis, granularities: Sequence[Scatter], views: Scatter | None, least: float = 0.0) -> Affine:
    """The layer from the scatter of each granularity and that of views, in the axes of the basis; `least` as in `axes`.

    Without any scatter the layer half-whitens.
    """
    scatters = [average(granularities)] if any(one.degrees for one in granularities) else []
    if views is not None and views.degrees:
        scatters.append(of_equal_size(scatters[0], views) if scatters else views)
    if not scatters:
        return Affine(basis.mean.astype(np.float32), (basis.axes * basis.variances**-0.25).astype(np.float32))
    projection = basis.axes @ axes(np.diag(basis.variances), average(scatters), least)
    return Affine(basis.mean.astype(np.float32), projection.astype(np.float32))


def of_views(basis: Basis, views: Float32[np.ndarray, "image view dim"]) -> Scatter:
    """The scatter of images within their views."""
    images, count, _ = views.shape
    return within_clusters(basis.turn(views.reshape(images * count, -1)), np.repeat(np.arange(images), count))
