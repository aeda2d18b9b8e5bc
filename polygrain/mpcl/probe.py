"""Probes of an encoder: classifiers on its features, or fine-tuned with few labels."""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from polygrain.compute import device, processes
from polygrain.compute.blocks import blocks
from polygrain.config.schema import BatchSize, Decay, Epochs, Rate, Section
from polygrain.encoder.views import Augmentation, Ratio, augment, centre_crop
from polygrain.mpcl.trainable import TrainableEncoder
from polygrain.store import arrays
from polygrain.training.loop import Batch, Loader, Schedule, batches, fit

Labels = Int64[np.ndarray, " image"]


class Recipe(Section):
    """The training of a linear classifier on an encoder, alone or together with it."""

    epochs: Epochs = Field(description="epochs over the labelled images")
    batch: BatchSize = Field(description="images of a batch")
    classifier_rate: Rate = Field(description="learning rate of SGD with momentum 0.9; a cosine leads to 0")
    encoder_rate: float = Field(
        ge=0, le=1000, description="learning rate of the encoder; 0 leaves it as it is: a linear probe"
    )
    weight_decay: Decay = Field(description="of all that trains")
    augmentation: Augmentation | None = Field(description="null with a frozen encoder: its features are computed once")
    crop_ratio: Ratio


def probe_split(
    labels: Labels, is_train: Bool[np.ndarray, " image"]
) -> tuple[Int64[np.ndarray, " some"], Int64[np.ndarray, " rest"]]:
    """The labelled images to fit a classifier on, and those to test it with; both are empty without test labels.

    They are the training and the test images where both have the same classes. Else (zero-shot tasks) a classifier is
    fitted on every second image of each test class.
    """
    train, test = (np.flatnonzero(part & (labels >= 0)) for part in (is_train, ~is_train))
    if len(test) and np.isin(labels[test], labels[train]).all():
        return train, test
    halves = [test[labels[test] == c][::2] for c in np.unique(labels[test])]
    chosen = np.sort(np.concatenate(halves)) if halves else test
    return chosen, np.setdiff1d(test, chosen)


def draw_share(labels: Labels, share: float, seed: int) -> Int64[np.ndarray, " chosen"]:
    """A share of the images of each class, at least one, in ascending order."""
    random, chosen = np.random.default_rng(seed), []
    for c in np.unique(labels):
        rows = np.flatnonzero(labels == c)
        chosen.append(random.choice(rows, max(1, round(share * len(rows))), replace=False))
    return np.sort(np.concatenate(chosen))


def find_listed(paths: Sequence[str], listed: Collection[str]) -> Int64[np.ndarray, " chosen"]:
    """The rows of the listed images in ascending order; ValueError where one is not among the paths."""
    names = set(listed)
    rows = np.array([row for row, path in enumerate(paths) if path in names], dtype=np.int64)
    if len(rows) != len(names) or not len(rows):
        raise ValueError(f"of {len(names)} listed images {len(rows)} are stored: run the stage `images` again")
    return rows


def build_classifier(dim: int, classes: int, seed: int) -> nn.Linear:
    """A linear layer as MoCo's probe starts it: weights N(0, 0.01), no bias at first."""
    classifier = nn.Linear(dim, classes)
    classifier.weight.data.normal_(0, 0.01, generator=torch.Generator().manual_seed(seed))
    classifier.bias.data.zero_()
    return classifier


def fit_linear(
    features: Float[Tensor, "image dim"], labels: Tensor, classes: int, recipe: Recipe, seed: int
) -> nn.Linear:
    """A linear classifier on features that do not change."""
    classifier = build_classifier(features.shape[1], classes, seed).to(features.device)
    optimizer = torch.optim.SGD(classifier.parameters(), momentum=0.9, weight_decay=recipe.weight_decay)
    schedule = Schedule(recipe.epochs, 0.0, 0.0)
    for epoch in range(recipe.epochs):
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        pieces = batches(len(features), recipe.batch, generator)
        for i, rows in enumerate(pieces):
            optimizer.param_groups[0]["lr"] = recipe.classifier_rate * schedule.factor(epoch + i / len(pieces))
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(classifier(features[rows]), labels[rows]).backward()
            optimizer.step()
    return classifier


def fine_tune(
    network: TrainableEncoder,
    pixels: arrays.Reader,
    rows: Int64[np.ndarray, " image"],
    labels: Labels,
    classes: int,
    recipe: Recipe,
    seed: int,
    work: Path,
) -> nn.Linear:
    """Trains a classifier on augmented images and returns it; the network trains with it, unless its rate is 0."""
    where, frozen = next(network.parameters()).device, recipe.encoder_rate == 0
    classifier = build_classifier(network.dim, classes, seed).to(where)
    trained = nn.ModuleDict({"classifier": classifier})
    groups = [{"params": list(trained.parameters()), "lr": recipe.classifier_rate}]
    if not frozen:
        groups.append({"params": list(network.parameters()), "lr": recipe.encoder_rate})
        trained["network"] = network
    network.requires_grad_(not frozen).train(not frozen)
    optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=recipe.weight_decay)
    targets = torch.from_numpy(labels).to(where)

    def read(batch: Tensor) -> Tensor:
        return device.staged(pixels[rows[batch.numpy()]], where)

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        images = batch.content.to(where, non_blocking=True)
        if recipe.augmentation is None:
            views = centre_crop(images, network.config.size)
        else:
            views = augment(images, network.config.size, recipe.augmentation, generator, recipe.crop_ratio)
        loss = functional.cross_entropy(classifier(network(views)), targets[device.sent(batch.rows, where)])
        return {"loss": loss / processes.count()}  # every process has the loss of the whole batch

    loader = Loader(len(rows), recipe.batch, lambda epoch: read)
    fit(trained, optimizer, Schedule(recipe.epochs, 0.0, 0.0), loader, step, seed, work)
    network.eval()
    return classifier


@torch.no_grad()
def embed(
    network: TrainableEncoder,
    pixels: arrays.Reader,
    rows: Int64[np.ndarray, " image"],
    batch: int,
    view: tuple[Augmentation, torch.Generator] | None = None,
) -> Float[Tensor, "image dim"]:
    """Features of the stored images: of their centre crop, or of one random view each. Not normalised."""
    where, size = next(network.parameters()).device, network.config.size
    network.eval()
    features = [torch.empty(0, network.dim, device=where)]
    for part in blocks(len(rows), batch):
        images = device.sent(torch.from_numpy(pixels[rows[part]]), where)
        features.append(network(augment(images, size, *view) if view else centre_crop(images, size)))
    return torch.cat(features)


def accuracy(classifier: nn.Linear, features: Float[Tensor, "image dim"], labels: Labels, top: int = 1) -> float:
    """The share of images whose class is among the classifier's `top` first."""
    with torch.no_grad():
        guesses = classifier(features).topk(top, 1).indices.cpu().numpy()
    return float((guesses == labels[:, None]).any(1).mean())
