"""The clusters of the training images at all granularities, and the last layer that they give behind a model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int

from polygrain.fisher.closed_form import Basis, basis_of, closed_form, of_views
from polygrain.fisher.layer import MOST
from polygrain.fisher.scatter import Scatter, within_clusters
from polygrain.retrieval.whitening import Affine
from polygrain.store import arrays
from polygrain.store.reading import read_json


@dataclass(frozen=True)
class Granularities:
    """Of the training images those that were clustered (`rows`), their tasks, and by granularity their cluster.

    Without a granularity there is no layer. One has `dim` numbers, or as many as it can have at most (None): zeros come
    last where fewer axes tell anything apart, so that its length does not change with the images.
    """

    rows: Int[np.ndarray, " row"]
    tasks: np.ndarray
    labels: Mapping[str, Int[np.ndarray, " row"]]
    dim: int | None = None

    def fit(
        self,
        vectors: Float32[np.ndarray, "row dim"],
        views: Float32[np.ndarray, "image view dim"] | None,
        known: tuple[Basis, Sequence[Scatter]] | None = None,
    ) -> Affine | None:
        """The layer behind a model, of its vectors of the `rows`; None without a granularity, or of equal vectors.

        `views`: its vectors of images and of their views. `known`: basis and scatters, where they were stored.
        """
        basis = known[0] if known else basis_of(vectors, self.tasks) if self.labels else None
        if basis is None:
            return None
        if known:
            scatters = known[1]
        else:
            turned = basis.turn(vectors)
            scatters = [within_clusters(turned, labels) for labels in self.labels.values()]
        seen = of_views(basis, views) if views is not None and len(views) else None
        layer = closed_form(basis, scatters, seen)
        dim = self.dim or min(MOST, len(basis.mean))
        return replace(layer, projection=layer.projection @ np.eye(layer.projection.shape[1], dim, dtype=np.float32))


def write_basis(basis: Basis, folder: Path) -> None:
    for (name, values), dims in zip(basis._asdict().items(), ("dim", "dim axis", "axis"), strict=True):
        arrays.write(folder / f"basis_{name}.zarr", values, dims)


def read_basis(folder: Path) -> Basis | None:
    """The basis that was written; None where the images are all equal."""
    if not (folder / "basis_mean.zarr").exists():
        return None
    return Basis(*(arrays.open(folder / f"basis_{name}.zarr")[:] for name in Basis._fields))


def write_scatter(scatter: Scatter, folder: Path) -> None:
    arrays.write(folder / "within.zarr", scatter.within.astype(np.float32), "axis axis")
    facts = {"shrinkage": scatter.shrinkage, "degrees": scatter.degrees}
    (folder / "scatter.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def read_scatters(folder: Path, names: Sequence[str]) -> list[Scatter]:
    """The scatter of each granularity."""
    return [read_scatter(folder / name) for name in names]


def read_scatter(folder: Path) -> Scatter:
    return Scatter(arrays.open(folder / "within.zarr")[:].astype(np.float64), **read_json(folder / "scatter.json"))
