"""A teacher's embeddings of the training images: of the encoder at several larger sides, or of a larger encoder.

Reads   images, the teacher: what the stage `encoder` takes, or a model folder such as data/resolution
Writes  weights.safetensors, config.json   the teacher, half-whitened, at the scale nearest to its own side
        embeddings.zarr                    training image x dim: its careful look, half-whitened

Sides larger than the stored images are left out: they would show no more.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polygrain.compute import device
from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.model import Model, most_blocks, save
from polygrain.encoder.origin import Origin
from polygrain.retrieval import whitening
from polygrain.runner import command, outputs
from polygrain.selection import criterion
from polygrain.store import arrays
from polygrain.store.image_table import open_pixels, read_tables
from polygrain.store.rectangle import Shape


class Params(schema.Section):
    look: criterion.Reference

    def fits(self, lists: Lists) -> None:
        """ValueError for a teacher that cannot be built; what a stage is still to make is not asked."""
        for name, teacher in lists.teachers.items():
            command.validate(Origin, teacher.model_dump(), f"teachers.{name}")


def build(path: Path, origin: Origin, side: int, shape: Shape) -> Model:
    """The teacher, for images that are stored at this side."""
    model = origin.build(path).float()
    changes: dict[str, Any] = {"shape": "whole" if shape == "whole" else "crop"}
    if model.config.resize != side:
        changes |= {"resize": side, "size": side, "scaled": None if side == model.config.side else model.config.side}
    model.config = model.config.model_copy(update=changes)
    return model


def narrowed(look: criterion.Reference, model: Model) -> criterion.Reference:
    """The look at sides that the stored images have; at the smallest, where none is so small."""
    scales = [scale for scale in look.scales if scale * model.config.side <= model.config.resize]
    return look.model_copy(update={"scales": scales or [min(look.scales)]})


def half_whitened(model: Model, looks: np.ndarray, look: criterion.Reference) -> Model:
    """The model as it looks nearest to its own side, with half whitening as its last layer."""
    if model.config.reduced:
        return model
    count = len(look.scales)
    place = min(range(count), key=lambda i: abs(look.scales[i] - 1))
    side = criterion.round_side(look.scales[place] * model.config.side, model)
    one = model.at_side(side, look.mirrored, min(look.blocks, most_blocks(model)))
    vectors = np.split(looks, count, axis=1)[place] * math.sqrt(count)
    fitted = whitening.fit(vectors, look.dim, "half")
    one.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))
    return one


def main(images: Path, path: Path, output: Path, *, name: str, params: Params, lists: Lists, shape: Shape) -> str:
    tasks = list(lists.tasks)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)
    model = build(path, Origin(**lists.teachers[name].model_dump()), pixels.shape[1], shape).to(device.best())
    look, settings = narrowed(params.look, model), device.inference(pixels.shape[1])
    looks = criterion.embed_carefully(model, pixels, collection.train, look, *settings, "teacher")
    fitted = whitening.fit(looks, look.dim, "half")
    with outputs.folder(output) as folder:
        save(half_whitened(model.cpu(), looks, look), folder)
        arrays.write(folder / "embeddings.zarr", whitening.apply(fitted, looks))
    return f"{counted(len(looks), 'image')} at {counted(len(look.scales), 'side')}, {model.config.architecture}"


if __name__ == "__main__":
    command.run(main, Params, shape="images.shape")
