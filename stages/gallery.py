"""One task's images as a collection to search: the recommended model's embeddings, compared as the model says.

Reads   images, choice, features
Writes  embeddings.parquet   what `polygrain embed` writes (collection/file.py), for `polygrain search --in`
"""

import os
from functools import partial
from pathlib import Path

import numpy as np

from polygrain.collection import file
from polygrain.collection.file import Facts
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.strength import SmoothingSettings
from polygrain.compute import device
from polygrain.config import schema
from polygrain.encoder.kept import digest
from polygrain.encoder.model import load
from polygrain.encoder.stored import embed, open_features
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store.image_table import open_pixels, read_table


class Params(schema.Section):
    smoothing: SmoothingSettings


def main(images: Path, choice: Path, features: Path, output: Path, *, task: str, params: Params) -> str:
    model, comparison = load(choice).to(device.best()), Comparisons.read(choice).of(task)
    pixels, table = open_pixels(images.parent, [task]), read_table(images)
    paths = table["path"].to_pylist()
    stored = open_features(features.parent, [task])
    vectors = embed(model, stored, pixels, np.arange(len(paths)), "gallery")
    columns = {"path": paths, "searched": comparison.plain(vectors)}
    # Where the originals lie is another place in each clone: a search asks params.yaml.
    places = {name: Path(os.path.relpath(of, output)) for name, of in (("root", images), ("folder", choice))}
    facts = Facts(digest(choice), model.dim, comparison, **places, task=task, count=len(paths))
    with outputs.folder(output) as folder:
        if comparison.smoothing.strength and len(paths) > 1:
            shown = partial(progress, description="smooth", unit="part")
            columns["plain"] = columns["searched"]
            columns["searched"] = comparison.rows(vectors, model.in_front, shown)
        columns["sha256"] = table["sha256"].to_pylist()
        file.write(folder / "embeddings.parquet", columns, facts)
    return f"{len(paths):,} images, {comparison}"


if __name__ == "__main__":
    command.run(main, Params)
