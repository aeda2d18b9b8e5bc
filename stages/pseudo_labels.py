"""k-means on the training features of all tasks: one cluster number per training image, for one k.

Reads   images (tables), features, seeds
Writes  labels.zarr      image: cluster of each training row
        centroids.zarr   cluster x dim: the mean of its features, also where the clusters are of whitened ones
        summary.json     k, inertia, iterations, cluster sizes; where clusters were sought in a sample (seeds.sample):
                         inertia per image of the sample and of all images
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from polygrain.clustering import lloyd, sampled
from polygrain.clustering.seeding import nearest_seeds
from polygrain.compute import device, processes
from polygrain.compute.counted import counted
from polygrain.compute.vectors import as_vectors
from polygrain.config import schema
from polygrain.config.lists import Lists, clusters_of
from polygrain.retrieval import whitening
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import open_train_features, read_tables
from polygrain.store.mapped_rows import Subset


class Params(schema.Section):
    max_iterations: schema.Count = Field(description="Lloyd stops earlier when no label changes")


# The vectors by which some of the training rows are clustered, of their numbers and their features.
Compared = Callable[[slice | np.ndarray, np.ndarray], np.ndarray]


def compared_by(seeds: Path) -> Compared:
    """The vectors that `seeds` clustered: the features as they are, whitened or smoothed."""
    if (seeds / "vectors.zarr").exists():
        stored = arrays.open(seeds / "vectors.zarr")
        return lambda part, features: stored[part]
    if not (seeds / "mean.zarr").exists():
        return lambda part, features: features
    whitener = whitening.Affine(*(arrays.open(seeds / f"{name}.zarr")[:] for name in ("mean", "projection")))
    return lambda part, features: whitening.apply(whitener, features)


def cluster(vectors: np.ndarray, n: int, order: np.ndarray, seeds: Path, k: int, params: Params) -> lloyd.Clusters:
    """Lloyd from the first k of the seeds `order`; `vectors` are this process's share of n rows."""
    x = as_vectors(vectors).to(device.best())
    start = processes.take(x, torch.from_numpy(order[:k]).to(x.device), n)
    first = nearest_seeds(arrays.open(seeds / "records.zarr")[:], k, n)
    return lloyd.lloyd(x, start, first, params.max_iterations)


def of_all(
    train: Subset, compared: Compared, order: np.ndarray, seeds: Path, k: int, params: Params
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Labels, the means of the features, and facts, from all rows; each process holds its share of them."""
    share = processes.share(len(train))
    rows = train[share]
    vectors = compared(share, rows)
    clusters = cluster(vectors, len(train), order, seeds, k, params)
    centroids = clusters.centroids
    if vectors is not rows:
        values, labels = (array.to(device.best()) for array in (as_vectors(rows), torch.from_numpy(clusters.labels)))
        centroids = lloyd.means(values, labels, k).cpu().numpy()
    facts = {"inertia": clusters.inertia, "iterations": clusters.iterations}
    return processes.gather_array(clusters.labels), centroids, facts


def of_sample(
    train: Subset, compared: Compared, order: np.ndarray, seeds: Path, k: int, params: Params
) -> tuple[np.ndarray, np.ndarray, dict]:
    """The same from a sample, and one pass over all rows in blocks."""
    sample = arrays.open(seeds / "sample.zarr")[:]
    processes.require(len(sample), "drawn training images")

    def read(part: slice) -> tuple[np.ndarray, np.ndarray]:
        return (features := train[part]), compared(part, features)

    drawn, own = train.some(sample), processes.share(len(sample))
    vectors = compared(sample[own], drawn[own])
    clusters = cluster(vectors, len(sample), np.searchsorted(sample, order), seeds, k, params)
    assigned = sampled.assign(read, len(train), clusters.centroids)
    sizes = np.bincount(assigned.labels, minlength=k)
    centroids = (assigned.sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)
    # A cluster may get no row before Lloyd has converged; it has the mean of its part of the sample.
    labels = processes.gather_array(clusters.labels)
    for number in np.flatnonzero(sizes == 0):
        centroids[number] = drawn[np.flatnonzero(labels == number)].mean(0)
    facts = {
        "inertia": float(assigned.squares.sum()),
        "iterations": clusters.iterations,
        "sample": {
            "images": len(sample),
            "inertia_per_image": float(assigned.squares[sample].mean()),
            "inertia_per_image_of_all": float(assigned.squares.mean()),
        },
    }
    return assigned.labels, centroids, facts


def main(
    images: Path, features: Path, seeds: Path, output: Path, *, granularity: str, params: Params, lists: Lists
) -> str:
    order, tasks = arrays.open(seeds / "order.zarr")[:], list(lists.tasks)
    train = open_train_features(features, tasks, read_tables(images, tasks))
    sample = seeds / "sample.zarr"
    k = clusters_of(granularity, len(arrays.open(sample)) if sample.exists() else len(train))
    if granularity.startswith("size"):
        k = min(k, len(order))  # of images that are there many times there are fewer clusters
    if k > len(order):
        raise ValueError(
            f"granularity {granularity} needs {k} seeds, and {len(order)} were drawn, which are distinct images: take "
            f"k{len(order)} at most, or raise seeds.largest if it is lower than {k}"
        )
    processes.require(len(train), "training images")
    of_rows = of_sample if sample.exists() else of_all
    labels, centroids, facts = of_rows(train, compared_by(seeds), order, seeds, k, params)
    sizes = np.bincount(labels, minlength=k)
    summary = {
        "k": k,
        "images": len(train),
        "inertia": facts["inertia"],
        "iterations": facts["iterations"],
        "sizes": {"smallest": int(sizes.min()), "median": float(np.median(sizes)), "largest": int(sizes.max())},
    } | facts
    with outputs.folder(output) as folder:
        arrays.write(folder / "labels.zarr", labels, "image")
        arrays.write(folder / "centroids.zarr", centroids, "cluster dim")
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return f"{k:,} clusters of {sizes.min()} to {sizes.max()} images, {counted(summary['iterations'], 'iteration')}"


if __name__ == "__main__":
    command.run(main, Params)
