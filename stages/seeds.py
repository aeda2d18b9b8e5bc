"""Exact k-means++ once, to the largest k: the first k seeds are a k-means++ start for every smaller k.

Reads   images (tables), features
Writes  order.zarr     seed: training rows in the order they were drawn
        records.zarr   record x 2: training row, position of a seed nearer to it than all before; they give the nearest
                       seed of every row for every k
        mean.zarr, projection.zarr   only where clusters are sought among whitened features: (x - mean) @ projection
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from stages.core.clustering.seeding import all_records, seed_order
from stages.core.compute import processes
from stages.core.retrieval import whitening
from stages.core.runner import command, outputs, schema
from stages.core.runner.lists import Lists
from stages.core.store import arrays
from stages.core.store.collection import open_train_features, read_tables


class Params(schema.Section):
    whitening: Literal["none", "half", "full"] = Field(description="of the features before they are clustered")
    whitened_dim: schema.Width = Field(description="dimensions kept by it (fewer where the data allow fewer)")
    largest: int = Field(
        ge=1, le=100_000_000, description="how many seeds to draw (fewer images: all): no granularity is finer"
    )


def main(images: Path, features: Path, output: Path, *, params: Params, lists: Lists, seed: int) -> str:
    tasks = list(lists.tasks)
    train = open_train_features(features, tasks, read_tables(images, tasks))
    largest = max(lists.sizes.values())
    if largest > min(len(train), params.largest):
        raise ValueError(
            f"granularity k{largest} needs {largest} clusters; at most {min(len(train), params.largest)} are allowed "
            f"({len(train)} training images, seeds.largest {params.largest}): remove it or raise what limits it"
        )
    # Of several processes each holds its share; what is fitted to all is read block by block.
    vectors, whitener = train[processes.share(len(train))], None
    if params.whitening != "none" and (dim := min(params.whitened_dim, whitening.largest(train))):
        whitener = whitening.fit(train, dim, params.whitening)
        vectors = whitening.apply(whitener, vectors)
    seeds = seed_order(vectors, min(params.largest, len(train)), seed)
    with outputs.folder(output) as folder:
        arrays.write(folder / "order.zarr", seeds.order)
        with arrays.create(folder / "records.zarr", (2,), "int64") as writer:
            for block in all_records(seeds):
                writer.append(block)
        if whitener is not None:
            arrays.write(folder / "mean.zarr", whitener.mean)
            arrays.write(folder / "projection.zarr", whitener.projection)
    return f"{len(seeds.order):,} seeds among {len(train):,} training images"


if __name__ == "__main__":
    command.run(main, Params)
