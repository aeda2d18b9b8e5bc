"""The scatter within the clusters of one granularity: its adaptor in closed form.

Reads   images (tables), features, seeds, pseudo_labels/<granularity>
Writes  within.zarr    axis x axis: the scatter in the axes of `seeds`, for each degree of freedom
        scatter.json   how far it has to be shrunk (Ledoit and Wolf), and its degrees of freedom: images minus clusters

Without an axis, where all images are equal, there is none. `choice` averages the scatters to one last layer.
"""

from pathlib import Path

import numpy as np

from polygrain.compute.counted import counted
from polygrain.config.lists import Lists
from polygrain.fisher.closed_form import Turned
from polygrain.fisher.granularities import read_basis, write_scatter
from polygrain.fisher.scatter import Scatter, within_clusters
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import read_tables
from polygrain.store.joined import Joined


def main(
    images: Path,
    features: Path,
    seeds: Path,
    pseudo_labels: Path,
    output: Path,
    *,
    granularity: str,
    blocks: int,
    lists: Lists,
) -> str:
    tasks = list(lists.tasks)
    collection, labels = read_tables(images, tasks), arrays.open(pseudo_labels / "labels.zarr")[:]
    basis, rows = read_basis(seeds), collection.train
    if (seeds / "sample.zarr").exists():
        sample = arrays.open(seeds / "sample.zarr")[:]
        rows, labels = rows[sample], labels[sample]
    if basis is None:
        scatter = Scatter(np.zeros((1, 1)), 1.0, 0)
    else:
        scatter = within_clusters(Turned(Joined(features, tasks, blocks, rows), basis), labels)
    with outputs.folder(output) as folder:
        write_scatter(scatter, folder)
    freedom = counted(scatter.degrees, "degree of freedom", "degrees of freedom")
    return f"covariance within clusters: {freedom}, Ledoit-Wolf shrinkage {scatter.shrinkage:.2f}"


if __name__ == "__main__":
    command.run(main, None, blocks="choice.blocks")
