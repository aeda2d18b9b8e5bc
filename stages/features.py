"""Class-token features of the frozen encoder for every image of one task, training and test.

Reads   images/<task>, encoder
Writes  features.zarr   image x dim, unit length
"""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from stages.core import command, device, outputs, store
from stages.core.extract import extract
from stages.core.model import load


class Params(command.Section):
    dtype: Literal["float16", "float32"]
    precision: device.Precision
    batch: int = Field(ge=1, description="images per forward pass")


def main(images: Path, encoder: Path, output: Path, *, task: str, params: Params) -> str:
    model = load(encoder).to(device.best())
    pixels = store.open(images / "pixels.zarr")
    with (
        outputs.folder(output) as folder,
        store.create(folder / "features.zarr", (model.dim,), params.dtype) as writer,
    ):
        for block in extract(model, pixels, np.arange(len(pixels)), params.batch, params.precision, task):
            writer.append(block.astype(params.dtype))
    return f"{len(pixels):,} images x {model.dim}"


if __name__ == "__main__":
    command.run(main, Params)
