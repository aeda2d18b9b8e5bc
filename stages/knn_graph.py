"""The nearest training images of every training image, across all tasks, by cosine of the encoder's features.

Reads   images (tables), features
Writes  neighbours.zarr   image x rank: training rows, nearest first, the image itself left out
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from stages.core.retrieval.neighbours import nearest
from stages.core.runner import command, outputs, schema
from stages.core.runner.lists import Lists
from stages.core.store import arrays
from stages.core.store.collection import open_train_features, read_tables


class Params(schema.Section):
    neighbours: schema.Count = Field(description="how many per image")


def main(images: Path, features: Path, output: Path, *, params: Params, lists: Lists) -> str:
    tasks = list(lists.tasks)
    vectors = open_train_features(features, tasks, read_tables(images, tasks))
    _, graph = nearest(vectors, vectors, params.neighbours, metric="cosine", exclude_self=True)
    with outputs.folder(output) as folder:
        arrays.write(folder / "neighbours.zarr", graph.astype(np.int64))
    return f"{graph.shape[1]} neighbours of {len(graph):,} images"


if __name__ == "__main__":
    command.run(main, Params)
