"""One adaptor set for one granularity: a bottleneck behind every block, trained to tell the pseudo-labels apart.

Reads   images, encoder, pseudo_labels/<granularity>
Writes  weights.safetensors, config.json   the encoder with its adaptors (the classifier is dropped)
        history.csv                        epoch, loss, accuracy
"""

from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from stages.core import checkpoint, command, device, outputs, store
from stages.core.adaptors import Adaptors
from stages.core.augment import Augmentation, augment
from stages.core.collection import open_pixels, read_tables
from stages.core.loop import Schedule, fit, write_history
from stages.core.losses.norm_softmax import norm_softmax
from stages.core.model import AdaptorConfig, Model, load, save


class Params(command.Section):
    width: int = Field(ge=1, description="hidden units D' of each bottleneck")
    gamma: float = Field(gt=0, description="scale of the cosines in the softmax")
    epochs: int = Field(ge=1)
    batch: int = Field(ge=2)
    learning_rate: float = Field(gt=0, description="Adam")
    weight_decay: float = Field(ge=0, description="Adam's own (coupled) decay")
    warmup: float = Field(ge=0, description="epochs")
    precision: device.Precision
    augmentation: Augmentation


def add_adaptors(model: Model, granularity: str, width: int, seed: int) -> nn.ModuleList:
    """Fresh near-identity adaptors in every block of the frozen encoder, the only part of it that trains."""
    torch.manual_seed(seed)  # nn.Linear draws from the global generator; nothing else here does
    layers = [Adaptors(model.dim, width, 1, "average") for _ in model.backbone.blocks]
    model.insert(layers, AdaptorConfig(names=[granularity], width=width, fusion="average"))
    trained = nn.ModuleList(model.adaptors)
    trained.requires_grad_(True)
    return trained


def train(
    model: Model,
    pixels: store.Reader,
    rows: Tensor,
    labels: Tensor,
    centroids: Tensor,
    granularity: str,
    params: Params,
    seed: int,
    work: Path,
) -> list[dict[str, int | float]]:
    """Minimises the norm-softmax loss of the adapted class token; returns the history. `labels[i]` is of `rows[i]`."""
    where = device.best()
    adaptors = add_adaptors(model, granularity, params.width, seed)
    # The adaptors start as the identity, so the clusters' own centroids are a classifier that is right from the start.
    classifier = nn.Parameter(centroids.clone())
    trained = nn.ModuleDict({"adaptors": adaptors, "classifier": nn.ParameterList([classifier])}).to(where)
    model.to(where)
    optimizer = torch.optim.Adam(trained.parameters(), params.learning_rate, weight_decay=params.weight_decay)

    def step(batch: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        images = torch.from_numpy(pixels[rows[batch].numpy()]).to(where, non_blocking=True)
        views = augment(images, model.config.size, params.augmentation, generator)
        with device.autocast(where, params.precision):
            tokens = model.features(views)
        loss, accuracy = norm_softmax(tokens, trained["classifier"][0], labels[batch].to(where), params.gamma)
        return {"loss": loss, "accuracy": accuracy}

    schedule = Schedule(params.epochs, params.warmup, 0.0)
    return fit(trained, optimizer, schedule, len(rows), params.batch, seed, step, work)


def main(
    images: Path,
    encoder: Path,
    pseudo_labels: Path,
    output: Path,
    *,
    granularity: str,
    params: Params,
    lists: command.Lists,
    seed: int,
) -> str:
    model, tasks = load(encoder), list(lists.tasks)
    labels, centroids = (store.open(pseudo_labels / f"{name}.zarr") for name in ("labels", "centroids"))
    pixels = open_pixels(images, tasks)
    rows = torch.from_numpy(read_tables(images, tasks).train)
    inputs = [
        params,
        seed,
        pixels.digest,
        labels.digest,
        centroids.digest,
        checkpoint.digest(encoder / "weights.safetensors"),
    ]
    work = checkpoint.work_folder("adaptor", granularity, *inputs)
    targets, start = torch.from_numpy(labels[:]), torch.from_numpy(centroids[:])
    history = train(model, pixels, rows, targets, start, granularity, params, seed, work)
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder / "history.csv", ["epoch", "loss", "accuracy"])
    checkpoint.clear(work)
    last = history[-1]
    return f"loss {last['loss']:.3f}, {last['accuracy']:.1%} of the pseudo-labels right, {len(history)} epochs"


if __name__ == "__main__":
    command.run(main, Params)
