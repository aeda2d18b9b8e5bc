"""A classifier of known classes trained from nothing, with one pooling before its last layer (GSP, Table 5).

Reads   one task's images, whose training and test images have the same classes (ImageNet: source `splits`)
Writes  weights.safetensors   the network, the pooling and the last layer
        network.safetensors   the network alone, to be gsp_folds.backbone.path
        history.csv           epoch, loss, accuracy
        metrics.json          fractions, of the test images: accuracy, accuracy_top5; map_at_r, recall_at_1 and so on,
                              of linear discriminants of the pooled features, fitted to the training images
        table.md              the same in percent, beside the number that the paper prints for such a run
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn import functional

from polygrain.compute import device
from polygrain.compute.blocks import blocks
from polygrain.config import schema
from polygrain.config.items.gsp import Classifier, Run
from polygrain.config.lists import Lists
from polygrain.encoder import networks
from polygrain.encoder.views import Augmentation, Ratio, augment, centre_square
from polygrain.gsp.classifier import PooledClassifier
from polygrain.gsp.discriminant import ClassSums
from polygrain.gsp.folds import resnet20  # noqa: F401  timm knows it from here on
from polygrain.gsp.folds.images import Images, read_images
from polygrain.gsp.poolings import build
from polygrain.gsp.report import published
from polygrain.gsp.report.contents import title_of
from polygrain.retrieval.metrics import score
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.store.tensors import write_weights
from polygrain.training import checkpoint
from polygrain.training.history import write_history
from polygrain.training.loop import Batch, Loader, Schedule, fit

TOP = 5
MOMENTUM = 0.9


class Convolutional(schema.Section):
    """A convolutional network that starts at random."""

    architecture: networks.Architecture = Field(description="a timm name")
    side: schema.Side = Field(description="side of the input, px")


class Params(schema.Section):
    networks: dict[schema.Name, Convolutional] = Field(description="by the names that gsp_classifiers has for them")
    poolings: dict[schema.Name, dict[str, float | int | bool | None]] = Field(
        description="values of each, by its name in polygrain/gsp/poolings"
    )
    embedding: int = Field(ge=2, description="linear discriminants of the retrieval scores")
    epochs: schema.Epochs = Field(description="epochs over the training images")
    batch: int = Field(ge=2, description="images of a batch")
    learning_rate: schema.Rate = Field(description="of SGD with momentum 0.9, at its highest; a cosine leads to 0")
    weight_decay: schema.Decay = Field(description="of all that trains")
    warmup: schema.Warmup = Field(description="epochs in which the rate rises to its full value")
    smoothing: float = Field(ge=0, lt=1, description="share of each target that is spread over all classes")
    ridge: schema.Factor = Field(description="ridge regularisation of the zero-shot loss's predictor")
    scale: schema.Factor = Field(description="factor of the zero-shot loss's logits")
    precision: device.Precision
    augmentation: Augmentation = Field(description="of training images")
    crop_ratio: Ratio
    centre: schema.Share = Field(description="part of a stored square's side that is seen in an evaluation")

    @field_validator("poolings")
    @classmethod
    def poolings_exist(cls, poolings: dict[str, dict]) -> dict[str, dict]:
        for name, values in poolings.items():
            build.KNOWN.checked(name, values)
        return poolings

    def fits(self, lists: Lists) -> None:
        """ValueError for a classifier of params.yaml with a network or a pooling that is not here."""
        for name, spec in lists.gsp_classifiers.items():
            choices = (("networks", spec.network, self.networks), ("poolings", spec.pooling, self.poolings))
            for title, value, allowed in choices:
                if value not in allowed:
                    names = ", ".join(sorted(allowed))
                    raise ValueError(f"gsp_classifiers.{name}: no gsp_classifier.{title}.{value}; known: {names}")


def split(table: Images) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on, rows to test on, and the class number of every row, from 0."""
    train, test = (np.flatnonzero((table.splits == "train") == is_train) for is_train in (True, False))
    classes = np.unique(table.labels[train])
    if unknown := set(table.labels[test].tolist()) - set(classes.tolist()):
        raise ValueError(
            f"{len(unknown)} classes have test images but no training images ({table.names[min(unknown)]}): "
            "take a task whose splits have the same classes (source `splits`)"
        )
    if not len(test) or len(classes) < 2:
        raise ValueError(f"{len(classes)} classes and {len(test)} test images; needed: two classes and test images")
    return train, test, np.searchsorted(classes, table.labels)


def train(
    model: PooledClassifier,
    pixels: arrays.Reader,
    rows: np.ndarray,
    labels: np.ndarray,
    side: int,
    params: Params,
    seed: int,
    work: Path,
) -> list[dict[str, int | float]]:
    """Trains the model in place and returns the history; `labels` are the classes of `rows`."""
    where, targets = next(model.parameters()).device, torch.from_numpy(labels)
    optimizer = torch.optim.SGD(model.parameters(), params.learning_rate, MOMENTUM, weight_decay=params.weight_decay)

    def read(batch: Tensor) -> Tensor:
        return device.staged(pixels[rows[batch.numpy()]], where)

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        images = batch.content.to(where, non_blocking=True)
        views = augment(images, side, params.augmentation, generator, params.crop_ratio)
        labels = device.sent(targets[batch.rows], where)
        loss, accuracy = model.loss_of(views, labels, params.smoothing, params.ridge, params.scale)
        return {"loss": loss, "accuracy": accuracy}

    model.train()
    loader = Loader(len(rows), params.batch, lambda epoch: read)
    return fit(model, optimizer, Schedule(params.epochs, params.warmup, 0.0), loader, step, seed, work)


def pooled(
    model: PooledClassifier, pixels: arrays.Reader, rows: np.ndarray, side: int, params: Params, title: str
) -> Iterator[tuple[slice, Tensor]]:
    """Each batch's slice of `rows`, and the pooled features of the middle of its images."""
    where = next(model.parameters()).device
    model.eval()
    for part in progress(blocks(len(rows), params.batch), title, unit="batch"):
        images = torch.from_numpy(pixels[rows[part]]).to(where)
        yield part, model(centre_square(images, side, torch.ones(len(images)), params.centre)).vector


@torch.no_grad()
def measure(
    model: PooledClassifier, pixels: arrays.Reader, table: Images, side: int, params: Params
) -> dict[str, float]:
    """Accuracies of the last layer on the test images, and retrieval scores of their linear discriminants."""
    taught, tested, classes = split(table)
    where, labels = next(model.parameters()).device, torch.from_numpy(classes)
    scatter = ClassSums(int(classes.max()) + 1, model.pool.size, where)
    for part, features in pooled(model, pixels, taught, side, params, "training images"):
        scatter.add(features, labels[taught[part]].to(where))
    mean, axes = scatter.discriminants(params.embedding)
    hits, vectors = torch.zeros(min(TOP, len(scatter.counts)), dtype=torch.int64), []
    for part, features in pooled(model, pixels, tested, side, params, "test images"):
        guesses = model.last(features).topk(len(hits), 1).indices
        hits += (guesses == labels[tested[part]].to(where)[:, None]).sum(0).cpu()
        vectors.append(functional.normalize((features - mean) @ axes, dim=1).cpu())
    accuracies = {"accuracy": int(hits[0]) / len(tested), f"accuracy_top{TOP}": int(hits.sum()) / len(tested)}
    return accuracies | score(torch.cat(vectors).numpy(), classes[tested], np.full(len(tested), "test"))


def printed_of(spec: Classifier, values: dict, embedding: int) -> list[published.Row]:
    """The rows that the paper prints for such a classifier."""
    if spec.network not in published.NETWORKS:
        return []
    run = Run(images=spec.images, loss="softmax", pooling=spec.pooling, zero_shot=spec.zero_shot, values={})
    setting = {"protocol": "classification", "embedding": embedding, "folds": 1, "values": values}
    claim = published.Claim(tables=[5], network=spec.network)
    rows = published.claimed(claim, Path(spec.images).name, {run.loss})
    return [row for row in rows if published.is_of(row, run, setting)]


def beside_printed(metrics: dict[str, float], spec: Classifier, values: dict, embedding: int) -> str:
    """The metrics in percent as a table, with the paper's numbers."""
    printed = {row["metric"]: row["percent"] for row in printed_of(spec, values, embedding)}
    lines = ["| metric | here | the paper, Table 5 |", "|---|---|---|"]
    lines += [f"| {title_of(name)} | {100 * value:.2f} | {printed.get(name, '')} |" for name, value in metrics.items()]
    return "\n".join(lines) + "\n"


def build_model(spec: Classifier, params: Params, classes: int, seed: int) -> PooledClassifier:
    """The classifier at its start, on the CPU."""
    network = params.networks[spec.network]
    torch.manual_seed(seed)  # all layers draw their start from the global generator
    whole = networks.build_network(network.architecture, {})
    values = params.poolings[spec.pooling]
    return PooledClassifier(whole, spec.pooling, values, classes, spec.zero_shot, params.embedding, params.precision)


def main(images: Path, output: Path, *, name: str, params: Params, lists: Lists, seed: int) -> str:
    params.fits(lists)
    spec, table = lists.gsp_classifiers[name], read_images(images)
    side, pixels = params.networks[spec.network].side, arrays.open(images / "pixels.zarr")
    taught, _, classes = split(table)
    work = checkpoint.work_folder("gsp_classifier", name, [spec, params, seed], [images])
    model = build_model(spec, params, int(classes.max()) + 1, seed).to(device.best())
    history = train(model, pixels, taught, classes[taught], side, params, seed, work)
    metrics = measure(model, pixels, table, side, params)
    with outputs.folder(output) as folder:
        write_weights(model, folder / "weights.safetensors")
        write_weights(model.network, folder / "network.safetensors")
        write_history(history, folder, ["epoch", "loss", "accuracy"])
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
        shown = beside_printed(metrics, spec, params.poolings[spec.pooling], params.embedding)
        (folder / "table.md").write_text(shown, encoding="utf-8")
    return f"accuracy {100 * metrics['accuracy']:.2f} %, MAP@R {100 * metrics['map_at_r']:.2f} %"


if __name__ == "__main__":
    command.run(main, Params)
