"""Class-token features of the frozen encoder for every image of one task, training and test.

Reads   images/<task>, encoder
Writes  features.zarr   image x dim, unit length or as the encoder gives them
"""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from polygrain.compute import device, processes
from polygrain.compute.blocks import blocks
from polygrain.config import schema
from polygrain.encoder.extract import extract
from polygrain.encoder.model import load
from polygrain.runner import command, outputs
from polygrain.store import arrays


class Params(schema.Section):
    unit_length: bool = Field(
        description="keep directions only; false: the class token z itself, whose length then counts in the clusters"
    )
    dtype: Literal["float16", "float32"] = Field(description="in which the features are stored")


def main(images: Path, encoder: Path, output: Path, *, task: str, params: Params) -> str:
    model = load(encoder).to(device.best())
    pixels = arrays.open(images / "pixels.zarr")
    if not params.unit_length and (model.config.reduced or model.config.mirrored or model.config.blocks > 1):
        raise ValueError(
            f"features.unit_length is false, but {encoder} is no plain encoder: its embedding is a reduction, a mean "
            "of two views, or of several blocks, and has no length of its own: set it to true, or give another encoder"
        )
    raw = None if params.unit_length else model.features

    def compute(rows: slice) -> np.ndarray:
        numbers = np.arange(rows.start, rows.stop)
        parts = extract(model, pixels, numbers, *device.inference(model.config.size), task, raw)
        return np.concatenate([part.astype(params.dtype) for part in parts])

    with (
        outputs.folder(output) as folder,
        arrays.create(folder / "features.zarr", (model.dim,), params.dtype) as writer,
    ):
        # Each process computes whole shards, so batches are the same for any number of processes.
        for shard in processes.dealt(blocks(len(pixels), writer.shard_rows), compute):
            writer.append(shard)
    return f"{len(pixels):,} images x {model.dim}"


if __name__ == "__main__":
    command.run(main, Params)
