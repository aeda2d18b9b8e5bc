"""An encoder pretrained without labels by MPCL: several projectors over it learn to recognise two views of an image.

Reads   images
Writes  weights.safetensors, config.json         the trained encoder: for a ViT a model folder like any other
        start/{weights.safetensors, config.json} the same before training, to compare with
        history.csv                              epoch, loss, contrast, spread; loss, accuracy and weight of each head;
                                                 the mean cosine of each pair of heads

Several devices: POLYGRAIN_PROCESSES=N (stages/run)
"""

import copy
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, model_validator

from polygrain.compute import device
from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder import networks
from polygrain.encoder.config import Arguments, Config
from polygrain.encoder.model import save
from polygrain.mpcl import trainable
from polygrain.mpcl.pretraining.barlow_twins import BarlowTwinsParams
from polygrain.mpcl.pretraining.moco_v2 import MocoV2Params
from polygrain.mpcl.pretraining.moco_v3 import MocoV3Params
from polygrain.mpcl.pretraining.objective import columns
from polygrain.mpcl.pretraining.run import FrameworkParams, Plan, pretrain
from polygrain.runner import command, outputs
from polygrain.store.image_table import open_pixels, read_tables
from polygrain.training import checkpoint
from polygrain.training.history import write_history

PIXEL_MEAN = PIXEL_STD = (0.5, 0.5, 0.5)


class Network(schema.Section):
    """The network of runs that start at random."""

    architecture: networks.Architecture = Field(description="a timm name")
    kwargs: Arguments = Field(description="further arguments of its constructor")
    side: schema.Side = Field(description="side of the input, px")

    @model_validator(mode="after")
    def can_be_built(self) -> "Network":
        networks.build_on_meta(self.architecture, self.kwargs)
        return self


class Params(Plan):
    network: Network
    precision: device.Precision
    moco_v2: MocoV2Params | None = Field(description="MoCo v2; null where no run takes it")
    moco_v3: MocoV3Params | None = Field(description="MoCo v3; null where no run takes it")
    barlow_twins: BarlowTwinsParams | None = Field(description="Barlow Twins; null where no run takes it")

    def fits(self, lists: Lists) -> None:
        """ValueError for a run whose framework is null here."""
        for run in lists.mpcl.values():
            self.framework(run.framework)

    def framework(self, name: str) -> FrameworkParams:
        """The section of a framework; ValueError where it is null, or its queue is no multiple of the batch."""
        section = getattr(self, name)
        if section is None:
            raise ValueError(f"a run asks for {name}, but mpcl_encoder.{name} is null: fill it in, or choose another")
        if isinstance(section, MocoV2Params):
            section.require_divided(self.batch)
        return section


def build_encoder(params: Params, stored: int, seed: int) -> trainable.TrainableEncoder:
    """The encoder at its random start, which follows from the seed alone."""
    network = params.network
    if network.side > stored:
        raise ValueError(f"images are stored at {stored} px, the encoder wants {network.side}: set images.side")
    torch.manual_seed(seed)  # timm draws a network's start from the global generator
    named = {"architecture": network.architecture, "kwargs": network.kwargs}
    config = Config(**named, size=network.side, resize=stored, mean=PIXEL_MEAN, std=PIXEL_STD)
    return trainable.TrainableEncoder(config, params.precision)


def main(images: Path, output: Path, *, run: str, params: Params, lists: Lists, seed: int) -> str:
    params.fits(lists)
    tasks, chosen = list(lists.tasks), lists.mpcl[run]
    framework, pixels = params.framework(chosen.framework), open_pixels(images, tasks)
    rows = read_tables(images, tasks).train
    work = checkpoint.work_folder("mpcl_encoder", run, [chosen, params, seed], [images / task for task in tasks])
    encoder = build_encoder(params, pixels.shape[1], seed)
    if isinstance(framework, MocoV3Params) and framework.fixed_patches:
        trainable.fix_patches(encoder)  # before the copy that is kept as the start
    untrained = copy.deepcopy(encoder)
    history = pretrain(encoder, pixels, rows, chosen, framework, params, seed, work)
    with outputs.folder(output) as folder:
        (folder / "start").mkdir()
        save(untrained, folder / "start")
        save(encoder, folder)
        write_history(history, folder, columns(chosen.heads))
    last = history[-1]
    right = np.mean([last[f"accuracy_{m + 1}"] for m in range(chosen.heads)])
    epochs = counted(len(history), "epoch")
    return f"{len(rows)} images, {epochs}, loss {last['loss']:.3f}, {right:.1%} of the pairs found"


if __name__ == "__main__":
    command.run(main, Params)
