"""Descriptors of both sides of every pair: several layers of a frozen network, each pooled and of unit length.

Reads   tll_pairs/<study>, the extractor's weights
Writes  {left,right}[_flipped]/descriptors.zarr   pair dim; the flipped ones are of the mirrored images
        network/{weights.safetensors, config.json} the network itself, so that no later stage needs its library's copy
"""

from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from stages.core import device, layers, store
from stages.core.extractors import published
from stages.core.runner import command, outputs, schema
from stages.core.runner.progress import progress


class Params(schema.Section):
    batch: int = Field(ge=1, description="images per forward pass")
    precision: device.Precision
    flips: bool = Field(description="train on mirrored pairs as well")
    extractors: dict[str, layers.Extractor] = Field(description="beside the published ones (core/extractors.csv)")


def chosen(params: Params, name: str) -> layers.Extractor:
    """The extractor of this name: of params.yaml, else of the published table; ValueError names all there are."""
    known = published() | params.extractors
    if name not in known:
        raise ValueError(f"tll_features.extractors has no {name!r}; known: {', '.join(sorted(known))}")
    return known[name]


def describe(network: layers.Layers, images: Tensor, precision: device.Precision) -> np.ndarray:
    """The descriptors of uint8 images `image y x channel`."""
    where = device.best()
    with torch.inference_mode(), device.autocast(where, precision):
        return network(images.to(where).permute(0, 3, 1, 2)).cpu().numpy()


def main(pairs: Path, weights: Path, output: Path, *, study: str, params: Params, lists: schema.Lists) -> str:
    network = layers.load(chosen(params, lists.tll[study].extractor), weights).to(device.best())
    sides = {side: store.open(pairs / side / "pixels.zarr") for side in ("left", "right")}
    if sides["left"].shape[1] != network.size:
        raise ValueError(
            f"the pairs are stored at {sides['left'].shape[1]} px, the extractor wants {network.size}: "
            "set tll_pairs.side to that"
        )
    dim = describe(network, torch.from_numpy(sides["left"][:1]), params.precision).shape[1]
    with outputs.folder(output) as folder:
        for side, pixels in sides.items():
            for view in ("", "_flipped") if params.flips else ("",):
                (folder / (side + view)).mkdir()
                with store.create(folder / (side + view) / "descriptors.zarr", (dim,), "float32") as writer:
                    for start in progress(range(0, len(pixels), params.batch), side + view, unit="batch"):
                        images = torch.from_numpy(pixels[start : start + params.batch])
                        writer.append(describe(network, images.flip(2) if view else images, params.precision))
        (folder / "network").mkdir()
        layers.save(network, folder / "network")
    views = "original and flipped" if params.flips else "original"
    return f"{len(sides['left']):,} pairs, {views}, {len(network.config.layers)} layers side by side: {dim}-D"


if __name__ == "__main__":
    command.run(main, Params)
