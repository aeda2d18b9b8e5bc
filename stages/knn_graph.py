"""The nearest training images of every training image, across all tasks, by cosine of the encoder's features.

Reads   images (tables), features
Writes  neighbours.zarr   image x rank: training rows, nearest first, the image itself left out
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from stages.core import store
from stages.core.collection import open_features, read_tables
from stages.core.neighbours import nearest
from stages.core.runner import command, outputs, schema


class Params(schema.Section):
    neighbours: int = Field(ge=1, description="how many per image")


def main(images: Path, features: Path, output: Path, *, params: Params, lists: schema.Lists) -> str:
    train = read_tables(images, list(lists.tasks)).train
    vectors = open_features(features, list(lists.tasks))[train].astype(np.float32)
    _, graph = nearest(vectors, vectors, params.neighbours, exclude_self=True)
    with outputs.folder(output) as folder:
        store.write(folder / "neighbours.zarr", graph.astype(np.int64))
    return f"{graph.shape[1]} neighbours of {len(graph):,} images"


if __name__ == "__main__":
    command.run(main, Params)
