"""k-means on the training features of all tasks: one cluster number per training image, for one k.

Reads   images (tables), features, seeds
Writes  labels.zarr      image: cluster of each training row
        centroids.zarr   cluster x dim: the mean of its features, also where the clusters are of whitened ones
        summary.json     k, inertia, iterations, cluster sizes
"""

import json
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from stages.core.clustering.lloyd import lloyd
from stages.core.clustering.seeding import nearest_seeds
from stages.core.compute import processes
from stages.core.compute.vectors import group_sizes, group_sums
from stages.core.retrieval import whitening
from stages.core.runner import command, outputs, schema
from stages.core.runner.lists import Lists
from stages.core.store import arrays
from stages.core.store.collection import open_train_features, read_tables


class Params(schema.Section):
    max_iterations: schema.Count = Field(description="Lloyd stops earlier when no label changes")
    exchanges: int = Field(
        ge=0, le=10_000, description="rounds of dissolving some clusters to split others; 0: plain k-means"
    )


def means(vectors: np.ndarray, labels: np.ndarray, sizes: Tensor) -> np.ndarray:
    """`cluster dim`: the mean of each cluster's vectors; every cluster has one or more."""
    rows, owners = torch.arange(len(vectors)), torch.from_numpy(labels)
    return (group_sums(torch.from_numpy(vectors), rows, owners, len(sizes)) / sizes[:, None]).float().numpy()


def main(
    images: Path, features: Path, seeds: Path, output: Path, *, granularity: str, params: Params, lists: Lists
) -> str:
    k, order = lists.sizes[granularity], arrays.open(seeds / "order.zarr")
    if k > len(order):
        raise ValueError(
            f"granularity {granularity} needs {k} seeds, at most {len(order)} are there: raise seeds.largest"
        )
    tasks = list(lists.tasks)
    train = open_train_features(features, tasks, read_tables(images, tasks))
    # Of several processes each holds its share of the images.
    mine = processes.share(len(train))
    is_whitened = (seeds / "mean.zarr").exists()
    if is_whitened:
        parts = (arrays.open(seeds / f"{name}.zarr")[:] for name in ("mean", "projection"))
        vectors = whitening.apply(whitening.Whitening(*parts), train[mine])
    else:
        vectors = train[mine]
    start = processes.take(torch.from_numpy(vectors), torch.from_numpy(order[:k]), len(train))
    first = nearest_seeds(arrays.open(seeds / "records.zarr"), k, len(train))
    clusters = lloyd(vectors, start, first, params.max_iterations, nearest=True, exchanges=params.exchanges)
    sizes = group_sizes(torch.from_numpy(clusters.labels), k)
    # Whoever learns from the clusters sees the features as they are.
    centroids = means(train[mine], clusters.labels, sizes) if is_whitened else clusters.centroids
    summary = {
        "k": k,
        "images": len(train),
        "inertia": float(clusters.inertia),
        "iterations": int(clusters.iterations),
        "sizes": {"smallest": int(sizes.min()), "median": float(np.median(sizes.numpy())), "largest": int(sizes.max())},
    }
    with outputs.folder(output) as folder:
        arrays.write(folder / "labels.zarr", processes.gather_array(clusters.labels))
        arrays.write(folder / "centroids.zarr", centroids)
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return f"{k:,} clusters of {sizes.min()} to {sizes.max()} images, {clusters.iterations} iterations"


if __name__ == "__main__":
    command.run(main, Params)
