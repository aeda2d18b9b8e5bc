"""k-means on the training features of all tasks: one cluster number per training image, for one k.

Reads   images (tables), features, seeds
Writes  labels.zarr      image: cluster of each training row
        centroids.zarr   cluster x dim: the mean of its features, also where the clusters are of whitened ones
        summary.json     k, inertia, iterations, cluster sizes; where clusters were sought in a sample (seeds.sample):
                         inertia per row of the sample (with its standard error) and of all, the largest share of
                         inertia lost by it (lost_at_most; null: unknown), and above 65,535 clusters how many coarse
                         cells there were, and what share of rows get their nearest centroid (`nearest`)
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from polygrain.clustering import sampled
from polygrain.clustering.lloyd import Clusters, lloyd
from polygrain.clustering.seeding import nearest_seeds
from polygrain.compute import processes
from polygrain.compute.vectors import group_sizes, group_sums
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.retrieval import neighbours, whitening
from polygrain.retrieval.approximate import SAMPLE, Centres
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.collection import open_train_features, read_tables
from polygrain.store.mapped_rows import Chosen

# The share of rows that get their nearest centroid where not all are compared with all.
NEAREST = 0.99


class Params(schema.Section):
    max_iterations: schema.Count = Field(description="Lloyd stops earlier when no label changes")
    exchanges: int = Field(
        ge=0, le=10_000, description="rounds of dissolving some clusters to split others; 0: plain k-means"
    )


def means(vectors: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """`cluster dim`: the mean of each cluster's vectors; every cluster has one or more."""
    rows, owners = torch.arange(len(vectors)), torch.from_numpy(labels)
    sums = group_sums(torch.from_numpy(vectors), rows, owners, k)
    return (sums / group_sizes(owners, k)[:, None]).float().numpy()


def of_all(
    train: Chosen, whitener: whitening.Whitening | None, seeds: Path, k: int, params: Params
) -> tuple[np.ndarray, Iterator[np.ndarray], dict]:
    """Labels, the means of the features, and the summary, from all rows; each process holds its share of them."""
    known = train[processes.share(len(train))]
    vectors = known if whitener is None else whitening.apply(whitener, known)
    order = torch.from_numpy(arrays.open(seeds / "order.zarr")[:k])
    start = processes.take(torch.from_numpy(vectors), order, len(train))
    first = nearest_seeds(arrays.open(seeds / "records.zarr"), k, len(train))
    clusters = lloyd(vectors, start, first, params.max_iterations, nearest=True, exchanges=params.exchanges)
    # Whoever learns from the clusters sees the features as they are.
    centroids = clusters.centroids if whitener is None else means(known, clusters.labels, k)
    summary = {"inertia": clusters.inertia, "iterations": clusters.iterations}
    return processes.gather_array(clusters.labels), iter([centroids]), summary


def of_sample(
    known: Chosen, whitener: whitening.Whitening | None, seeds: Path, k: int, params: Params
) -> tuple[np.ndarray, Iterator[np.ndarray], dict]:
    """The same from a sample, and one pass over all rows; the means block by block, as no process may hold them all."""
    sample = arrays.open(seeds / "sample.zarr")[:]
    own = known.some(sample)
    processes.require(len(own), "drawn training images")

    def compared(rows: np.ndarray) -> np.ndarray:
        return rows if whitener is None else whitening.apply(whitener, rows)

    def read(part: slice) -> tuple[np.ndarray, np.ndarray]:
        return (rows := known[part]), compared(rows)

    clusters = sampled_clusters(compared(own[processes.share(len(own))]), sample, seeds, k, params)
    if k < sampled.COARSE:

        def near(rows: np.ndarray) -> np.ndarray:
            return neighbours.search(rows, clusters.centroids, 1, "l2")[1][:, 0]

        assigned, facts = sampled.assign(read, len(known), clusters.centroids, near), {}
    else:
        centres = Centres(clusters.centroids, compared(own[:SAMPLE]), NEAREST)
        assigned = sampled.assign_apart(read, len(known), clusters.centroids, centres.near)
        facts = {"cells": sampled.coarse_cells(k), "nearest": round(centres.recall, 4)}
    first, count = assigned.first, len(assigned.sums)
    sizes = np.bincount(assigned.labels, minlength=k)[first : first + count]
    centroids = assigned.sums / np.maximum(sizes, 1)[:, None]
    # A cluster that no row came to, as may be before Lloyd rests, has the mean of its part of the sample.
    labels = processes.gather_array(clusters.labels)
    if len(rows := np.flatnonzero(np.isin(labels, first + np.flatnonzero(sizes == 0)))):
        with processes.alone():
            centroids[sizes == 0] = means(own[rows], labels[rows] - first, count)[sizes == 0]
    lost = sampled.loss(assigned.costs, sample)
    facts = {
        "images": len(sample),
        "inertia_per_image": lost.sample,
        "standard_error": lost.error,
        "inertia_per_image_of_all": lost.all_rows,
        "lost_at_most": round(lost.at_most, 6) if np.isfinite(lost.at_most) else None,
    } | facts
    inertia = float(assigned.costs.sum())
    summary = {"inertia": inertia, "iterations": clusters.iterations, "sample": facts}
    found = centroids.astype(np.float32)
    return assigned.labels, iter([found]) if k < sampled.COARSE else processes.each_part(found), summary


def sampled_clusters(vectors: np.ndarray, sample: np.ndarray, seeds: Path, k: int, params: Params) -> Clusters:
    """The clusters of the sample, of which each process gives its share."""
    order = np.searchsorted(sample, arrays.open(seeds / "order.zarr")[:])
    count = min(len(order), k if k < sampled.COARSE else sampled.coarse_cells(k))
    start = processes.take(torch.from_numpy(vectors), torch.from_numpy(order[:count]), len(sample))
    first = nearest_seeds(arrays.open(seeds / "records.zarr"), count, len(sample))
    if k < sampled.COARSE:
        return lloyd(vectors, start, first, params.max_iterations, nearest=True, exchanges=params.exchanges)
    # What is drawn in the cells follows the first seed, which was drawn by the seed of all.
    return sampled.two_stage(vectors, start, first, k, int(order[0]), params.max_iterations)


def main(
    images: Path, features: Path, seeds: Path, output: Path, *, granularity: str, params: Params, lists: Lists
) -> str:
    k, order = lists.sizes[granularity], arrays.open(seeds / "order.zarr")
    is_sampled, is_whitened = (seeds / "sample.zarr").exists(), (seeds / "mean.zarr").exists()
    if k > len(order) and not (is_sampled and k >= sampled.COARSE):
        raise ValueError(
            f"granularity {granularity} needs {k} seeds, at most {len(order)} are there: raise seeds.largest"
        )
    tasks = list(lists.tasks)
    train = open_train_features(features, tasks, read_tables(images, tasks))
    processes.require(len(train), "training images")
    whitener = None
    if is_whitened:
        whitener = whitening.Whitening(*(arrays.open(seeds / f"{name}.zarr")[:] for name in ("mean", "projection")))
    labels, centroids, found = (of_sample if is_sampled else of_all)(train, whitener, seeds, k, params)
    sizes = np.bincount(labels, minlength=k)
    summary = {
        "k": k,
        "images": len(train),
        "inertia": float(found.pop("inertia")),
        "iterations": int(found.pop("iterations")),
        "sizes": {"smallest": int(sizes.min()), "median": float(np.median(sizes)), "largest": int(sizes.max())},
    } | found
    with outputs.folder(output) as folder:
        arrays.write(folder / "labels.zarr", labels)
        with arrays.create(folder / "centroids.zarr", train.shape[1:], "float32") as writer:
            for block in centroids:
                writer.append(block)
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return f"{k:,} clusters of {sizes.min()} to {sizes.max()} images, {summary['iterations']} iterations"


if __name__ == "__main__":
    command.run(main, Params)
