"""The outputs that `resolution` stored for the images on which candidates are compared: `choice` embeds none again.

sample.parquet   the images, as rows of the whole collection, and the task of each
SIDE/views.zarr  image x view x dim: outputs of the encoder's last blocks for each image as it is and for four views,
                 at its own side and at the one that was chosen; `views.json` says of which network
looks.zarr       image x dim: the careful looks of the reference, where it is needed
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from polygrain.encoder.model import Model
from polygrain.encoder.stored import Stored
from polygrain.selection.criterion import CriterionSettings, Embedded, Sample, embed_views
from polygrain.store import arrays
from polygrain.store.reading import read_json, reading, remedy_for


class Seen(NamedTuple):
    """The sample, the outputs for its views by side, and the looks of the reference."""

    sample: Sample
    views: Mapping[int, Stored] = {}
    looks: Float32[np.ndarray, "image look"] | None = None

    def require(self, model: Model, count: int) -> None:
        """ValueError where the outputs of the last `count` blocks of this model, at its side, were not stored."""
        if model.config.side not in self.views:
            sides = ", ".join(map(str, sorted(self.views)))
            raise ValueError(
                f"`resolution` saw images at {sides} px; {model.config.side} px is expected: run `dvc repro resolution`"
            )
        self.views[model.config.side].require(model, count)

    def embed(self, model: Model, pixels: arrays.Reader, settings: CriterionSettings) -> Embedded:
        """Embeddings of the sample and its views: from stored outputs, where they are of this model."""
        stored = self.views.get(model.config.side)
        if stored is not None and stored.holds(model):
            return Embedded.of(stored.embed(model, np.arange(len(self.sample.rows))))
        return embed_views(model, pixels, self.sample, settings)

    def write(self, folder: Path) -> None:
        columns = {"row": self.sample.rows, "group": pa.array(self.sample.tasks, pa.string())}
        pq.write_table(pa.table(columns), folder / "sample.parquet")
        for side, stored in self.views.items():
            (folder / str(side)).mkdir()
            arrays.write(folder / str(side) / "views.zarr", stored.rows[:], "image view dim")
            (folder / str(side) / "views.json").write_text(json.dumps(stored.facts, indent=1) + "\n")
        if self.looks is not None:
            arrays.write(folder / "looks.zarr", self.looks, "image dim", 64)


def read(folder: Path) -> Seen:
    """Reads what `write` wrote; ValueError where it is missing or damaged."""
    with reading(folder / "sample.parquet", remedy_for(folder)):
        table = pq.read_table(folder / "sample.parquet")
        sample = Sample(table["row"].to_numpy(), np.array(table["group"].to_pylist(), dtype=object))
    views = {
        int(part.name): Stored(arrays.open(part / "views.zarr"), read_json(part / "views.json"), "resolution")
        for part in folder.iterdir()
        if part.name.isdecimal()
    }
    looks = arrays.open(folder / "looks.zarr")[:] if (folder / "looks.zarr").exists() else None
    return Seen(sample, views, looks)
