"""One model that learns to give in one pass, at its own input side, its embedding of several larger passes.

Reads   images, encoder, the folder of the model that is taught (the encoder, or a fusion)
Writes  weights.safetensors, config.json   the model: its adaptors, and half whitening as its last layer
        history.csv                        epoch, loss, criterion

The target of an image is the model's own embedding at larger inputs, averaged with the mirror image's, half-whitened,
and mixed with the targets of the nearest images. The adaptors learn to reach it from the plain image, by the cosine,
without clusters or labels. A plain encoder gets one adaptor set; a fusion goes on with its own.

Several processes share the work: POLYGRAIN_PROCESSES, or POLYGRAIN_TORCHRUN on several machines.
"""

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from polygrain.compute import device, processes
from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.config import AdaptorConfig
from polygrain.encoder.model import Model, load, most_blocks, save
from polygrain.encoder.views import Augmentation, ShareOfDraws, augment
from polygrain.retrieval import whitening
from polygrain.retrieval.mixing import mixed_with_others
from polygrain.runner import command, outputs
from polygrain.selection import criterion
from polygrain.selection.watch import WatchSettings, watcher
from polygrain.store import arrays
from polygrain.store.image_table import open_pixels, read_tables
from polygrain.training import checkpoint
from polygrain.training.history import write_history
from polygrain.training.loop import AdamSettings, Batch, Loader, Schedule, Watch, fit


class Params(AdamSettings, WatchSettings):
    target: criterion.Reference = Field(description="the embedding that is learnt")
    neighbours: int = Field(
        ge=0, le=1000, description="nearest other images whose targets are mixed into an image's own; 0: none"
    )
    width: schema.Width = Field(description="hidden units of the bottlenecks that a plain encoder gets")
    precision: device.Precision
    augmentation: Augmentation = Field(description="of each image, drawn anew in each epoch")


def make_targets(model: Model, pixels: arrays.Reader, rows: np.ndarray, params: Params) -> Float[Tensor, "image dim"]:
    """The target of each row; the whitening that made it becomes the model's last layer.

    The whitening is of several looks side by side. At the start the plain look stands for each of them, so the last
    layer is the sum of their maps.
    """
    processes.require(len(rows), "training images")
    part = rows[processes.share(len(rows))]
    looks = criterion.embed_carefully(model, pixels, part, params.target, params.batch, params.precision, "target")
    looks = processes.gather_array(looks)
    whitener = whitening.fit(looks, params.target.dim, "half")
    count = len(params.target.scales)
    last = whitener.projection.reshape(count, -1, whitener.projection.shape[1]).sum(0) / math.sqrt(count)
    model.reduce(torch.from_numpy(last.T.copy()), torch.from_numpy(whitener.bias))
    return torch.from_numpy(mixed_with_others(whitening.apply(whitener, looks), params.neighbours))


def train(
    model: Model, pixels: arrays.Reader, rows: np.ndarray, params: Params, watch: Watch | None, seed: int, work: Path
) -> list[dict[str, int | float]]:
    """Trains the adaptors of the model towards its own careful embeddings; returns the history."""
    where = device.best()
    model.to(where)
    targets = make_targets(model, pixels, rows, params)
    trained = nn.ModuleList(model.adaptors).requires_grad_(True)
    optimizer = torch.optim.Adam(trained.parameters(), params.learning_rate, weight_decay=params.weight_decay)

    def read(batch: Tensor) -> Tensor:
        return device.staged(pixels[rows[batch[processes.share(len(batch))].numpy()]], where)

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        part, drawn = processes.share(len(batch.rows)), ShareOfDraws(generator, len(batch.rows))
        images = batch.content.to(where, non_blocking=True)
        views = augment(images, model.config.size, params.augmentation, drawn)
        with device.autocast(where, params.precision):
            embeddings = model(views)
        expected = device.sent(targets[batch.rows[part]], where)
        return {"loss": (1 - cosine_similarity(embeddings.float(), expected)).sum() / len(batch.rows)}

    loader, schedule = Loader(len(rows), params.batch, lambda epoch: read), Schedule(params.epochs, params.warmup, 0.0)
    return fit(trained, optimizer, schedule, loader, step, seed, work, watch)


def main(
    images: Path,
    encoder: Path,
    taught: Path,
    output: Path,
    *,
    name: str,
    params: Params,
    settings: criterion.CriterionSettings,
    reference: criterion.Reference,
    lists: Lists,
    seed: int,
) -> str:
    model, tasks = load(taught), list(lists.tasks)
    if model.config.reduced:
        raise ValueError(
            f"the model has a reduction to {model.config.reduced} dimensions, which distillation would replace: take "
            "it out of `distillations`, or give an encoder without a reduction"
        )
    blocks = min(params.target.blocks, most_blocks(model))
    model = model.at_side(model.config.side, model.config.mirrored, blocks)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)
    reads = [encoder, taught, *(images / task for task in tasks)]
    work = checkpoint.work_folder("distillation", name, [params, settings, reference, seed], reads)
    if not model.adaptors:
        torch.manual_seed(seed)  # nn.Linear draws from the global generator; nothing else here does
        config = AdaptorConfig(names=["distilled"], width=params.width, fusion="average")
        model.insert(model.new_adaptors(config), config)
    watch = watcher(load(encoder), model, pixels, collection, settings, reference, params, seed)
    history = train(model, pixels, collection.train, params, watch, seed, work)
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder, ["epoch", "loss", *(["criterion"] if watch else [])])
    last = history[-1]
    return f"loss {history[0]['loss']:.3f} to {last['loss']:.3f}, {counted(len(history), 'epoch')}"


if __name__ == "__main__":
    command.run(main, Params, settings="choice.criterion", reference="choice.reference")
