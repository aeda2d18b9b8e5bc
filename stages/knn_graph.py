"""The nearest training images of every training image, across all tasks, by cosine of the encoder's features.

Reads   images (tables), features
Writes  neighbours.zarr   image x rank: training rows, nearest first, the image itself left out
        summary.json      only of an index that misses some: its recall of the exact neighbours of `asked` drawn images,
                          the recall that was `wanted`, and its `effort` (cells looked into)
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import Field

from polygrain.compute import processes
from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.retrieval.approximate import Index, KnnGraph, Recall, choose, nearest_others
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.store.image_table import open_train_features, read_tables


class Params(schema.Section):
    neighbours: schema.Count = Field(description="number for each image; all other images where there are fewer")
    index: Index
    recall: Recall


def summary(graph: KnnGraph, wanted: float) -> dict[str, object]:
    """Facts of an approximate graph; `fusion` reads `index` and `wanted` to rebuild it alike."""
    images, neighbours = graph.neighbours.shape
    return {
        "index": graph.index,
        "images": images,
        "neighbours": neighbours,
        "wanted": wanted,
        "recall": round(graph.recall, 4),
        "standard_error": round(graph.error, 4),
        "asked": graph.asked,
        "effort": graph.effort,
    }


def main(images: Path, features: Path, output: Path, *, params: Params, lists: Lists) -> str:
    tasks = list(lists.tasks)
    vectors = open_train_features(features, tasks, read_tables(images, tasks))
    if len(vectors) < 2:
        raise ValueError(f"{len(vectors)} image trains: give more images, or draw other queries (images.draw)")
    index = choose(params.index, len(vectors))
    # One process passes over the rows many times, so they are read once; several read them block by block.
    rows = vectors[:] if index == "exact" and processes.count() == 1 else vectors
    shown = partial(progress, description="neighbours", unit="part")
    neighbours = min(params.neighbours, len(vectors) - 1)
    graph = nearest_others(rows, neighbours, index, params.recall, shown=shown)
    with outputs.folder(output) as folder:
        arrays.write(folder / "neighbours.zarr", graph.neighbours.astype(np.int64), "image rank", 1024)
        if index != "exact":
            (folder / "summary.json").write_text(json.dumps(summary(graph, params.recall), indent=1) + "\n")
    count = f"{counted(neighbours, 'neighbour')} for each of {counted(len(vectors), 'image')}"
    return count if index == "exact" else f"{count}, {index} with a recall of {graph.recall:.1%}"


if __name__ == "__main__":
    command.run(main, Params)
