"""Learning to tell classes apart with the norm-softmax loss: pseudo-labels, or true labels in the supervised studies.

What trains is up to the caller: one adaptor set, the attention of a fusion, or a whole encoder.
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from polygrain.compute import device, processes
from polygrain.config.schema import Factor
from polygrain.encoder.model import Model
from polygrain.encoder.views import Augmentation, ShareOfDraws, augment
from polygrain.losses.norm_softmax import norm_softmax
from polygrain.store import arrays
from polygrain.training.loop import AdamSettings, Batch, Loader, Schedule, Watch, fit


class ClassifierSettings(AdamSettings):
    """Learning to tell classes apart with the norm-softmax loss."""

    gamma: Factor = Field(description="scale of the cosines in the softmax")
    precision: device.Precision
    augmentation: Augmentation = Field(description="of each image, drawn anew in each epoch")


def build_optimizer(trained: nn.ModuleDict, params: AdamSettings, decays: bool) -> torch.optim.Adam:
    """Adam for all of `trained`; the entry `classifier` decays only if `decays` says so.

    Adam divides a gradient by its size: a class that few images pull at would lose its start to the decay within an
    epoch. Only a classifier that was drawn has no start to lose.
    """
    classifier = list(trained["classifier"].parameters())
    others = [p for name, part in trained.items() if name != "classifier" for p in part.parameters()]
    decay = params.weight_decay if decays else 0.0
    groups: list[dict[str, Any]] = [{"params": others}, {"params": classifier, "weight_decay": decay}]
    return torch.optim.Adam(groups, params.learning_rate, weight_decay=params.weight_decay)


def train(
    model: Model,
    parts: nn.Module,
    start: Tensor,
    pixels: arrays.Reader,
    rows: Tensor,
    labels: Tensor,
    params: ClassifierSettings,
    seed: int,
    work: Path,
    watch: Watch | None = None,
    decays: bool = False,
) -> list[dict[str, int | float]]:
    """Trains the `parts` of a model and a throw-away classifier that begins at `start` (class x dim); the history.

    `labels[i]` is of `rows[i]`. With `watch` the best epoch is kept (`loop.fit`). `decays`: the classifier, too.
    """
    where = device.best()
    classifier = nn.ParameterList([nn.Parameter(start.clone())])
    trained = nn.ModuleDict({"adaptors": parts, "classifier": classifier}).requires_grad_(True).to(where)
    model.to(where)
    optimizer = build_optimizer(trained, params, decays)

    def read(batch: Tensor) -> Tensor:
        return device.staged(pixels[rows[batch[processes.share(len(batch))]].numpy()], where)

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        # Every process draws the views of the whole batch, and reads and takes through the model its share of them.
        mine, drawn = processes.share(len(batch.rows)), ShareOfDraws(generator, len(batch.rows))
        images = batch.content.to(where, non_blocking=True)
        views = augment(images, model.config.size, params.augmentation, drawn)
        with device.autocast(where, params.precision):
            tokens = model.features(views)
        targets = device.sent(labels[batch.rows][mine], where)
        loss, accuracy = norm_softmax(tokens, classifier[0], targets, params.gamma)
        part = len(tokens) / len(batch.rows)
        return {"loss": part * loss, "accuracy": part * accuracy}

    loader = Loader(len(rows), params.batch, lambda epoch: read)
    return fit(trained, optimizer, Schedule(params.epochs, params.warmup, 0.0), loader, step, seed, work, watch)


def class_means(embeddings: Tensor, labels: Tensor) -> Tensor:
    """`class dim`: the mean embedding of each class, a classifier that is right from the start."""
    sums = torch.zeros(int(labels.max()) + 1, embeddings.shape[1]).index_add_(0, labels, embeddings)
    return sums / torch.bincount(labels)[:, None]
