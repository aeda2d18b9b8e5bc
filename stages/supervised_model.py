"""An upper bound from true labels: norm-softmax training on one task, or on all together (Grappa, appendix A).

Reads   images, encoder
Writes  weights.safetensors, config.json   one model (the classifier is dropped)
        history.csv                        epoch, loss, accuracy

What trains: `full` all weights of the encoder, `one` one random adaptor set, `many` as many random sets as there are
granularities, together with their fusion.
"""

from pathlib import Path

import torch
from pydantic import Field

from polygrain.compute import device
from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.config import Attention
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load, save
from polygrain.encoder.prepare import restore
from polygrain.grappa import classification
from polygrain.grappa.random_sets import insert_random
from polygrain.runner import command, outputs
from polygrain.store.image_table import open_pixels, read_tables
from polygrain.training import checkpoint
from polygrain.training.history import write_history


class Params(schema.Section):
    width: schema.Width = Field(description="hidden units D' of each bottleneck")
    start_std: float = Field(gt=0, le=10, description="standard deviation of Q and K at the start")
    full: classification.ClassifierSettings = Field(description="all weights of the encoder train")
    one: classification.ClassifierSettings = Field(description="one random adaptor set trains")
    many: classification.ClassifierSettings = Field(description="a random set for each granularity, with their fusion")


def main(
    images: Path,
    encoder: Path,
    output: Path,
    *,
    name: str,
    on: str,
    how: str,
    params: Params,
    attention: Attention,
    lists: Lists,
    seed: int,
) -> str:
    tasks = list(lists.tasks) if on == "all" else [on]
    model, settings = load(encoder).to(device.best()), getattr(params, how)
    pixels, collection = open_pixels(images, tasks), read_tables(images, tasks)
    rows, labels = collection.train, torch.from_numpy(collection.train_classes())
    if not len(rows):
        raise ValueError(f"supervised_models.{name} trains on {on}, which has no training images (an unseen task?)")
    values, reads = (
        [params, attention, seed, on, how, len(lists.trained)],
        [encoder, *(images / task for task in tasks)],
    )
    work = checkpoint.work_folder("supervised_model", name, values, reads)
    embeddings = torch.from_numpy(embed(model, pixels, rows, settings.batch, settings.precision, "class means"))
    start = classification.class_means(embeddings, labels)
    count = len(lists.trained) if how == "many" else 1
    if how == "full":
        parts = restore(model.backbone)
    else:
        parts = insert_random(model, count, params.width, attention, params.start_std, seed)
    history = classification.train(model, parts, start, pixels, torch.from_numpy(rows), labels, settings, seed, work)
    with outputs.folder(output) as folder:
        save(model.requires_grad_(False), folder)
        write_history(history, folder, ["epoch", "loss", "accuracy"])
    last = history[-1]
    shown = f"loss {last['loss']:.3f}, {last['accuracy']:.1%} right, {counted(len(history), 'epoch')}"
    return f"{len(start):,} classes, {shown}"


if __name__ == "__main__":
    command.run(main, Params, attention="fusion.attention")
