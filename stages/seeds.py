"""Exact k-means++ once, to the largest k: the first k seeds are a k-means++ start for every smaller k.

Reads   images (tables), features
Writes  order.zarr     seed: training rows in the order they were drawn
        records.zarr   record x 2: training row, position of a seed nearer to it than all before; they give the nearest
                       seed of every row for every k
        sample.zarr    only where clusters are sought in a sample: its training rows, ascending. It alone is seeded and
                       fits the whitening, and the rows of the records are counted within it
        mean.zarr, projection.zarr   only where clusters are sought among whitened features: (x - mean) @ projection
        vectors.zarr   only where clusters are sought by smoothed rows
        basis_mean.zarr, basis_axes.zarr, basis_variances.zarr   the axes in which `scatter` has the clusters; none of
                       images that are all equal
"""

from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float32
from pydantic import Field

from polygrain.clustering import sampled
from polygrain.clustering.seeding import seed_order
from polygrain.collection.postprocessing.comparison import Comparison, mean_of
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.collection.postprocessing.strength import NONE
from polygrain.compute import device, processes
from polygrain.compute.blocks import Rows
from polygrain.compute.vectors import as_vectors
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.fisher.closed_form import basis_of
from polygrain.fisher.granularities import write_basis
from polygrain.retrieval import whitening
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import open_train_features, read_tables
from polygrain.store.joined import Joined

# By which features are smoothed before they are clustered.
STRENGTH, NEIGHBOURS = 0.9, 20


class Params(schema.Section):
    drawn: Literal["images", "cells"] = Field(
        description="images: the sample has single images, to train networks; cells: it has groups of images that lie "
        "together, whose clusters are as small as among all images"
    )
    whitening: Literal["none", "half", "full", "smoothed"] = Field(
        description="of the features before they are clustered; smoothed: half-whitened, after the features of each "
        "task were smoothed (not for a sample)"
    )
    whitened_dim: schema.Width = Field(description="dimensions that whitening keeps (fewer where the data allow fewer)")
    largest: int = Field(
        ge=1,
        le=100_000_000,
        description="number of seeds to draw, or all images; no k may be larger; more are drawn for clusters by size",
    )
    sample: int | None = Field(
        ge=1,
        le=100_000_000,
        description="number of drawn images that are clustered; the others join these clusters; null: all",
    )

    def fits(self, lists: Lists) -> None:
        """ValueError where a granularity is finer than the seeds that are drawn."""
        named = [name for name in lists.granularities if name[0] == "k"]
        if (largest := max((int(name[1:]) for name in named), default=1)) > self.largest:
            raise ValueError(f"seeds.largest is {self.largest}, and granularities has {largest}: set it to {largest}")

    def needed(self, lists: Lists, images: int) -> int:
        """The seeds for the finest granularity; no dependency, so that another granularity runs no seeding again."""
        return max(lists.clusters(images).values(), default=1)


def smoothed(rows: Float32[np.ndarray, "row dim"], tasks: np.ndarray, dim: int) -> Float32[np.ndarray, "row axis"]:
    """Rows of unit length less the mean of their task, smoothed within it, and half-whitened."""
    result = rows.copy()
    for own in (np.flatnonzero(tasks == task) for task in np.unique(tasks)):
        by = Smoothing(STRENGTH, min(NEIGHBOURS, len(own) - 1)) if len(own) > 1 else NONE
        result[own] = Comparison(mean_of(rows[own]), by).rows(rows[own])
    whitener = whitening.fit_if_varied(result, dim, "half")
    return result if whitener is None else whitening.apply(whitener, result)


def main(images: Path, features: Path, output: Path, *, params: Params, blocks: int, lists: Lists, seed: int) -> str:
    tasks = list(lists.tasks)
    collection = read_tables(images, tasks)
    train: Rows = open_train_features(features, tasks, collection)
    count, by = min(train.shape[0], params.sample or train.shape[0]), None
    if params.whitening == "smoothed" and count == train.shape[0]:
        by = smoothed(train[:], collection.tasks[collection.train], params.whitened_dim)
    train = train if by is None else by
    processes.require(count, "training images")
    largest = params.needed(lists, count)
    if largest > count:
        drawn = f", seeds.sample {params.sample}" if count < train.shape[0] else ""
        raise ValueError(
            f"granularities need {largest} clusters; at most {count} are allowed ({train.shape[0]} training images"
            f"{drawn}): remove one or raise what limits it"
        )
    sample, whitener = None, None
    if count < train.shape[0]:
        sample = (
            sampled.draw_cells(train, count, seed)
            if params.drawn == "cells"
            else sampled.draw(train.shape[0], count, seed)
        )
    # Each process holds its share of the rows; the whitening is fitted to all of them, block by block.
    rows = train if sample is None else train.some(sample) if by is None else by[sample]
    vectors = rows[processes.share(rows.shape[0])]
    if params.whitening != "none" and by is None:
        whitener = whitening.fit_if_varied(rows, params.whitened_dim, "full" if params.whitening == "full" else "half")
    if whitener is not None:
        vectors = whitening.apply(whitener, vectors)
    drawn = max(largest, min(params.largest, count))
    # Of images that are there many times there are fewer seeds; `pseudo_labels` names a k that needs more.
    seeds = seed_order(as_vectors(vectors).to(device.best()), drawn, seed, fewer=True)
    clustered = collection.train if sample is None else collection.train[sample]
    basis = basis_of(Joined(features, tasks, blocks, clustered), collection.tasks[clustered])
    with outputs.folder(output) as folder:
        arrays.write(folder / "order.zarr", seeds.order if sample is None else sample[seeds.order], "seed")
        arrays.write(folder / "records.zarr", seeds.records, "record pair", 4096)
        if sample is not None:
            arrays.write(folder / "sample.zarr", sample, "row")
        if whitener is not None:
            arrays.write(folder / "mean.zarr", whitener.mean, "dim")
            arrays.write(folder / "projection.zarr", whitener.projection, "dim component", 4096)
        if by is not None:
            arrays.write(folder / "vectors.zarr", by, "image dim")
        if basis is not None:
            write_basis(basis, folder)
    among = f"{train.shape[0]:,} training images"
    return f"{len(seeds.order):,} seeds among {among if sample is None else f'{count:,} drawn of {among}'}"


if __name__ == "__main__":
    command.run(main, Params, blocks="choice.blocks")
