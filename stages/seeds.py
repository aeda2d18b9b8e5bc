"""Exact k-means++ once, to the largest k: the first k seeds are a k-means++ start for every smaller k.

Reads   images (tables), features
Writes  order.zarr     seed: training rows in the order they were drawn
        records.zarr   record x 2: training row, position of a seed nearer to it than all before; they give the nearest
                       seed of every row for every k
        mean.zarr, projection.zarr   only where clusters are sought among whitened features: (x - mean) @ projection
"""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from stages.core.clustering.seeding import seed_order
from stages.core.retrieval import whitening
from stages.core.runner import command, outputs, schema
from stages.core.runner.lists import Lists
from stages.core.store import arrays
from stages.core.store.collection import open_features, read_tables


class Params(schema.Section):
    whitening: Literal["none", "half", "full"] = Field(description="of the features before they are clustered")
    whitened_dim: schema.Width = Field(description="dimensions kept by it (fewer where the data allow fewer)")
    largest: int = Field(
        ge=1, le=100_000_000, description="how many seeds to draw (fewer images: all): no granularity is finer"
    )


def main(images: Path, features: Path, output: Path, *, params: Params, lists: Lists, seed: int) -> str:
    train = read_tables(images, list(lists.tasks)).train
    largest = max(lists.sizes.values())
    if largest > min(len(train), params.largest):
        raise ValueError(
            f"granularity k{largest} needs {largest} clusters; at most {min(len(train), params.largest)} are allowed "
            f"({len(train)} training images, seeds.largest {params.largest}): remove it or raise what limits it"
        )
    vectors, whitener = open_features(features, list(lists.tasks))[train].astype(np.float32), None
    if params.whitening != "none" and (dim := min(params.whitened_dim, whitening.largest(vectors))):
        whitener = whitening.fit(vectors, dim, params.whitening)
        vectors = whitening.apply(whitener, vectors)
    seeds = seed_order(vectors, min(params.largest, len(train)), seed)
    with outputs.folder(output) as folder:
        arrays.write(folder / "order.zarr", seeds.order)
        arrays.write(folder / "records.zarr", seeds.records)
        if whitener is not None:
            arrays.write(folder / "mean.zarr", whitener.mean)
            arrays.write(folder / "projection.zarr", whitener.projection)
    return f"{len(seeds.order):,} seeds among {len(train):,} training images"


if __name__ == "__main__":
    command.run(main, Params)
