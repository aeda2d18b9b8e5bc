"""Exact k-means++ once, to the largest k: the first k seeds are a k-means++ start for every smaller k.

Reads   images (tables), features
Writes  order.zarr     seed: training rows in the order they were drawn
        records.zarr   record x 2: training row, position of a seed nearer to it than all before; they give the nearest
                       seed of every row for every k
        sample.zarr    only where clusters are sought in a sample: its training rows, ascending. It alone is seeded and
                       fits the whitening, and the rows of the records are counted within it
        mean.zarr, projection.zarr   only where clusters are sought among whitened features: (x - mean) @ projection
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from polygrain.clustering import sampled
from polygrain.clustering.seeding import seed_order
from polygrain.compute import device, processes
from polygrain.compute.vectors import as_vectors
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.retrieval import whitening
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.collection import open_train_features, read_tables


class Params(schema.Section):
    whitening: Literal["none", "half", "full"] = Field(description="of the features before they are clustered")
    whitened_dim: schema.Width = Field(description="dimensions kept by it (fewer where the data allow fewer)")
    largest: int = Field(
        ge=1, le=100_000_000, description="how many seeds to draw (fewer images: all): no granularity is finer"
    )
    sample: int | None = Field(
        ge=1,
        le=100_000_000,
        description="clusters are sought among so many drawn images, and all images are then given to them; null: among"
        " all",
    )

    def fits(self, lists: Lists) -> None:
        """ValueError where a granularity is finer than the seeds that are drawn."""
        if (largest := max(lists.sizes.values(), default=1)) > self.largest:
            raise ValueError(f"seeds.largest is {self.largest}, and granularities has {largest}: set it to {largest}")


def main(images: Path, features: Path, output: Path, *, params: Params, lists: Lists, seed: int) -> str:
    tasks = list(lists.tasks)
    train = open_train_features(features, tasks, read_tables(images, tasks))
    largest, count = max(lists.sizes.values(), default=1), min(len(train), params.sample or len(train))
    processes.require(count, "training images")
    if largest > min(count, params.largest):
        drawn = f", seeds.sample {params.sample}" if count < len(train) else ""
        raise ValueError(
            f"granularity k{largest} needs {largest} clusters; at most {min(count, params.largest)} are allowed "
            f"({len(train)} training images, seeds.largest {params.largest}{drawn}): remove it or raise what limits it"
        )
    sample = sampled.draw(len(train), count, seed) if count < len(train) else None
    # Each process holds its share of the rows; the whitening is fitted to all of them, block by block.
    rows, whitener = train if sample is None else train.some(sample), None
    vectors = rows[processes.share(len(rows))]
    if params.whitening != "none":
        whitener = whitening.fit_if_varied(rows, params.whitened_dim, params.whitening)
    if whitener is not None:
        vectors = whitening.apply(whitener, vectors)
    seeds = seed_order(as_vectors(vectors).to(device.best()), min(params.largest, count), seed)
    with outputs.folder(output) as folder:
        arrays.write(folder / "order.zarr", seeds.order if sample is None else sample[seeds.order])
        arrays.write(folder / "records.zarr", seeds.records)
        if sample is not None:
            arrays.write(folder / "sample.zarr", sample)
        if whitener is not None:
            arrays.write(folder / "mean.zarr", whitener.mean)
            arrays.write(folder / "projection.zarr", whitener.projection)
    among = f"{len(train):,} training images"
    return f"{len(seeds.order):,} seeds among {among if sample is None else f'{count:,} drawn of {among}'}"


if __name__ == "__main__":
    command.run(main, Params)
