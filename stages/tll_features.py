"""Descriptors of both sides of every pair: several layers of a frozen network, each pooled and of unit length.

Reads   tll_pairs/<study>, the extractor's weights
Writes  {left,right}[_flipped]/descriptors.zarr   pair dim; the flipped ones are of the mirrored images
        network/{weights.safetensors, config.json} the network itself, so that no later stage needs its library's copy
"""

from pathlib import Path

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from polygrain.compute import device
from polygrain.compute.blocks import blocks
from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.tll.extractors import layers
from polygrain.tll.extractors.config import Extractor
from polygrain.tll.extractors.published import needs_file, published


class Params(schema.Section):
    flips: bool = Field(
        description="train on mirrored pairs too, as the published code does; letters must not be mirrored"
    )
    extractors: dict[schema.Name, Extractor] = Field(
        description="beside the published ones of polygrain/tll/extractors/extractors.csv"
    )

    @field_validator("extractors")
    @classmethod
    def can_be_built(cls, extractors: dict[str, Extractor]) -> dict[str, Extractor]:
        for extractor in extractors.values():
            if extractor.library != "encoder":
                with torch.device("meta"):
                    layers.build(extractor)
        return extractors

    def fits(self, lists: Lists) -> None:
        """ValueError for a study with an unknown extractor, or without the file of one whose weights no library has."""
        for name, study in lists.tll.items():
            chosen(self, study.extractor)
            is_own = study.extractor in self.extractors
            if not is_own and needs_file(study.extractor) and Path(study.weights).suffix not in layers.FILES:
                raise ValueError(
                    f"tll.{name}.weights is {study.weights}; no library has those of {study.extractor}: "
                    f"name a file ({', '.join(layers.FILES)})"
                )


def chosen(params: Params, name: str) -> Extractor:
    """The extractor of this name, of params.yaml or else of the published table."""
    extractors = published() | params.extractors
    if name not in extractors:
        raise ValueError(f"tll_features.extractors has no {name!r}; known: {', '.join(sorted(extractors))}")
    return extractors[name]


def describe(network: layers.Layers, images: Tensor, precision: device.Precision) -> np.ndarray:
    """The descriptors of uint8 images `image y x channel`."""
    where = device.best()
    with torch.inference_mode(), device.autocast(where, precision):
        return network(images.to(where).permute(0, 3, 1, 2)).cpu().numpy()


def main(pairs: Path, weights: Path, output: Path, *, study: str, params: Params, lists: Lists) -> str:
    network = layers.load(chosen(params, lists.tll[study].extractor), weights).to(device.best())
    sides = {side: arrays.open(pairs / side / "pixels.zarr") for side in ("left", "right")}
    if sides["left"].shape[1] != network.size:
        raise ValueError(
            f"the pairs are stored at {sides['left'].shape[1]} px, the extractor wants {network.size}: "
            "set tll_pairs.side to it"
        )
    batch, precision = device.inference(network.size)
    dim = describe(network, torch.from_numpy(sides["left"][:1]), precision).shape[1]
    with outputs.folder(output) as folder:
        for side, pixels in sides.items():
            for view in ("", "_flipped") if params.flips else ("",):
                (folder / (side + view)).mkdir()
                with arrays.create(
                    folder / (side + view) / "descriptors.zarr", (dim,), "float32", "image dim", chunk=64
                ) as writer:
                    for part in progress(blocks(len(pixels), batch), side + view, unit="batch"):
                        images = torch.from_numpy(pixels[part])
                        writer.append(describe(network, images.flip(2) if view else images, precision))
        (folder / "network").mkdir()
        layers.save(network, folder / "network")
    views = "original and flipped" if params.flips else "original"
    layers_of = f"{counted(len(network.config.layers), 'layer')} side by side"
    return f"{counted(len(sides['left']), 'pair')}, {views}, {layers_of}: {dim}-D"


if __name__ == "__main__":
    command.run(main, Params)
