"""The frozen encoder's outputs for every image of one task, training and test, at the chosen side: its only pass.

Reads   images/<task>, resolution
Writes  features.zarr   image x dim: the outputs of as many blocks as the choice may take, the last one's first, each of
                        unit length; of an encoder that is reduced or mirrored its embedding alone
        features.json   their side and widths, how many columns are the encoder's own embedding, which clusters and
                        neighbours are sought by, and a digest of the network
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from polygrain.compute import device, processes
from polygrain.compute.blocks import blocks
from polygrain.config import schema
from polygrain.encoder.extract import embed
from polygrain.encoder.model import blocks_for, load
from polygrain.encoder.stored import facts_of
from polygrain.runner import command, outputs
from polygrain.store import arrays

BLOCK_ROWS = 16_384  # that a process computes at a time


class Params(schema.Section):
    unit_length: bool = Field(
        description="keep directions only; false: the class token z itself, whose length then counts in the clusters"
    )
    dtype: Literal["float16", "float32"] = Field(
        description="in which the features are stored; float32 for what does not fit float16"
    )


def write(file: Path, width: int, dtype: str, parts: Iterator[np.ndarray]) -> None:
    """Writes rows as they come; ValueError for values outside the type."""
    with arrays.create(file, (width,), dtype, "image dim") as writer, np.errstate(over="ignore"):
        for part in parts:
            rows = part.astype(dtype)
            if (np.isinf(rows) > np.isinf(part)).any():
                raise ValueError(f"some features are too large for {dtype}: set features.dtype to float32")
            writer.append(rows)


def main(images: Path, encoder: Path, output: Path, *, task: str, params: Params, taken: int) -> str:
    model = load(encoder)
    pixels, width = arrays.open(images / "pixels.zarr"), model.dim
    is_one = model.config.reduced or model.config.mirrored
    if not params.unit_length and (is_one or model.config.blocks > 1):
        raise ValueError(
            f"features.unit_length is false, but {encoder} is no plain encoder: its embedding is a reduction, a mean "
            "of two views, or of several blocks, and has no length of its own: set it to true, or give another encoder"
        )
    if not is_one:
        model = model.at_side(model.config.side, False, blocks_for(model, taken))
    model.to(device.best())

    def block_outputs(batch: Tensor) -> Tensor:
        given, kept = model.raw_outputs(batch), 0 if params.unit_length else 1
        return torch.cat([*given[:kept], *(normalize(output, dim=1) for output in given[kept:])], 1)

    def compute(rows: slice) -> np.ndarray:
        numbers, settings = np.arange(rows.start, rows.stop), device.inference(model.config.size)
        return embed(model, pixels, numbers, *settings, task, None if is_one else block_outputs)

    facts = facts_of(model)
    with outputs.folder(output) as folder:
        # Each process computes whole parts, so batches are the same for any number of processes.
        parts = processes.round_robin(blocks(len(pixels), BLOCK_ROWS), compute)
        write(folder / "features.zarr", sum(facts["widths"]), params.dtype, parts)
        (folder / "features.json").write_text(json.dumps(facts | {"embedding": width}, indent=1) + "\n")
    return f"{len(pixels):,} images, {sum(facts['widths']):,} numbers each"


if __name__ == "__main__":
    command.run(main, Params, taken="choice.blocks")
