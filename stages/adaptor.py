"""One adaptor set for one granularity: a bottleneck behind every block, trained to tell the pseudo-labels apart.

Reads   images, encoder, pseudo_labels/<granularity>
Writes  weights.safetensors, config.json   the encoder with its adaptors (the classifier is dropped)
        history.csv                        epoch, loss, accuracy, criterion: the best epoch by it is kept
"""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.config import AdaptorConfig
from polygrain.encoder.model import Model, load, save
from polygrain.grappa import classification
from polygrain.runner import command, outputs
from polygrain.selection.criterion import CriterionSettings, Reference
from polygrain.selection.watch import WatchSettings, watcher
from polygrain.store import arrays
from polygrain.store.image_table import open_pixels, read_tables
from polygrain.training import checkpoint
from polygrain.training.history import write_history

# Of each number of a drawn classifier. Such short vectors turn faster than centroids, which are as long as features.
DEVIATION = 0.02


class Params(classification.ClassifierSettings, WatchSettings):
    width: schema.Width = Field(description="hidden units D' of each bottleneck")
    start: Literal["centroids", "drawn"] = Field(
        description="of the classifier's weights: the clusters' centroids, or short vectors that are drawn"
    )


def own_seed(seed: int, granularity: str) -> int:
    """A seed for each set, since the paper trains them independently (3.4)."""
    return int(np.random.SeedSequence([seed, *granularity.encode()]).generate_state(1)[0])


def add_adaptors(model: Model, granularity: str, width: int, seed: int) -> nn.ModuleList:
    """Fresh near-identity adaptors in every block of the frozen encoder, the only part of it that trains."""
    torch.manual_seed(seed)  # nn.Linear draws from the global generator; nothing else here does
    config = AdaptorConfig(names=[granularity], width=width, fusion="average")
    model.insert(model.new_adaptors(config), config)
    trained = nn.ModuleList(model.adaptors)
    trained.requires_grad_(True)
    return trained


def main(
    images: Path,
    encoder: Path,
    pseudo_labels: Path,
    output: Path,
    *,
    granularity: str,
    params: Params,
    settings: CriterionSettings,
    reference: Reference,
    lists: Lists,
    seed: int,
) -> str:
    model, tasks = load(encoder), list(lists.tasks)
    labels, centroids = (arrays.open(pseudo_labels / f"{name}.zarr") for name in ("labels", "centroids"))
    pixels = open_pixels(images, tasks)
    collection = read_tables(images, tasks)
    rows = torch.from_numpy(collection.train)
    reads = [encoder, pseudo_labels, *(images / task for task in tasks)]
    work = checkpoint.work_folder("adaptor", granularity, [params, settings, reference, seed], reads)
    targets, start = torch.from_numpy(labels[:]), torch.from_numpy(centroids[:])
    own = own_seed(seed, granularity)
    if is_drawn := params.start == "drawn":
        start = DEVIATION * torch.randn(start.shape, generator=torch.Generator().manual_seed(own))
    parts = add_adaptors(model, granularity, params.width, own)
    watch = watcher(load(encoder), model, pixels, collection, settings, reference, params, seed)
    history = classification.train(model, parts, start, pixels, rows, targets, params, own, work, watch, is_drawn)
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder, ["epoch", "loss", "accuracy", *(["criterion"] if watch else [])])
    last = history[-1]
    right = f"{last['accuracy']:.1%} of the pseudo-labels right"
    return f"loss {last['loss']:.3f}, {right}, {counted(len(history), 'epoch')}"


if __name__ == "__main__":
    command.run(main, Params, settings="choice.criterion", reference="choice.reference")
