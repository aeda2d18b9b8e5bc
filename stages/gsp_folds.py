"""One configuration (data, loss, pooling) of metric learning, trained on one fold of its protocol, from one seed.

Reads   one folder of images (a task's, or collages), encoder
Writes  weights.safetensors   all that was trained, in its best state
        embeddings.zarr       `image dim`, unit length, of the evaluated images
        attributes.zarr       `image prototype`, for poolings that have them
        history.csv           step, loss, the validation score (named protocol.chosen_by), rate
        pictures.safetensors  of the first fold and repeat alone: rows; weights and strongest prototype of each place
        config.json           the run, its setting, the numbers of the evaluated rows, the training classes

A killed training continues at its last validation.
"""

import json
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from polygrain.compute import device
from polygrain.config import schema
from polygrain.config.items.gsp import Run
from polygrain.config.lists import Lists
from polygrain.encoder.views import Augmentation, Ratio
from polygrain.gsp.folds import classes, early_stopping, trunk
from polygrain.gsp.folds.classes import ClassBatches
from polygrain.gsp.folds.embedder import (
    START,
    Embedder,
    LossParams,
    Objective,
    Values,
    embed,
    parameter_groups,
    write,
    write_pictures,
)
from polygrain.gsp.folds.images import Images, read_images
from polygrain.gsp.folds.maps import Maps, Whole
from polygrain.gsp.poolings import build
from polygrain.losses import metric
from polygrain.retrieval.metrics import score
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.rectangle import Shape
from polygrain.training import checkpoint

OPTIMIZERS = {"adam": torch.optim.Adam, "radam": partial(torch.optim.RAdam, decoupled_weight_decay=True)}
BETA1 = 0.9
PICTURES = 6  # test classes to show weights of


class Params(schema.Section):
    side: int = Field(ge=16, description="side of the network's input, px")
    resize: schema.Side | None = Field(
        description="shorter side of a whole image (images.shape: squash) before the centre crop, px; null: side"
    )
    backbone: trunk.Backbone
    hidden: int = Field(ge=0, description="units of a layer between backbone and pooling; 0: none")
    embedding: int = Field(ge=2, description="dimensions of the embedding")
    protocol: classes.Protocol
    stopping: early_stopping.Stopping = Field(description="of each fold")
    losses: dict[schema.Name, LossParams] = Field(
        description="values of each, by its name in polygrain/losses/metric.py"
    )
    poolings: dict[schema.Name, Values] = Field(description="values of each, by its name in polygrain/gsp/poolings")
    ridge: schema.Factor = Field(description="ridge regularisation of the zero-shot loss's predictor")
    scale: schema.Factor = Field(description="factor of the zero-shot loss's logits")
    optimizer: Literal[tuple(OPTIMIZERS)] = Field(description="of all that trains")
    learning_rate: schema.Rate = Field(description="of the optimizer, for all but the proxies")
    beta2: float = Field(gt=0, lt=1, description="decay of the optimizer's mean of squared gradients")
    weight_decay: schema.Decay = Field(description="Adam's own (coupled) decay; with radam it stands apart (decoupled)")
    precision: device.Precision
    augmentation: Augmentation | None = Field(description="of training images; null: the images as they are")
    crop_ratio: Ratio

    @model_validator(mode="after")
    def values_fit(self) -> "Params":
        if self.resize is not None and self.resize < self.side:
            raise ValueError(f"resize {self.resize} is smaller than side {self.side}; it must be {self.side} or more")
        for name, loss in self.losses.items():
            metric.KNOWN.checked(name, loss.values)
            if self.embedding % loss.values.get("heads", 1):
                heads = loss.values["heads"]
                raise ValueError(f"losses.{name}.values.heads is {heads}; it must divide embedding, {self.embedding}")
        for name, values in self.poolings.items():
            build.KNOWN.checked(name, values)
        return self

    def fits(self, lists: Lists) -> None:
        """ValueError for a run of params.yaml with a loss, a pooling, values or folds that are not here."""
        for name, run in lists.gsp_runs.items():
            _, _, values = configure(run, self)
            try:
                build.KNOWN.checked(run.pooling, values)
            except ValueError as error:
                raise ValueError(f"gsp_runs.{name}.values: {error}") from error
            listed = lists.repeats_of(name)
            needed = [*product(range(self.protocol.trained), range(len(listed) // self.protocol.trained or 1))]
            if listed != needed:
                names = ", ".join(f"{name}-{fold}-{repeat}" for fold, repeat in needed)
                raise ValueError(f"gsp_trainings must have each fold of {name} equally often, such as {names}")


def configure(run: Run, params: Params) -> tuple[LossParams, Objective, dict]:
    """The run's loss, its objective and the values of its pooling. ValueError lists the names in params.yaml."""
    for title, name, allowed in (("losses", run.loss, params.losses), ("poolings", run.pooling, params.poolings)):
        if name not in allowed:
            raise ValueError(f"no gsp_folds.{title}.{name}; known: {', '.join(sorted(allowed))}")
    loss = params.losses[run.loss]
    objective = Objective(run.loss, loss.values, run.zero_shot, params.ridge, params.scale)
    return loss, objective, params.poolings[run.pooling] | run.values


def setting_of(run: Run, params: Params) -> dict[str, str | int | dict]:
    """The run's setting that the report compares: protocol, network, sizes and the pooling's values."""
    protocol = params.protocol
    return {
        "protocol": protocol.kind,
        "chosen_by": protocol.chosen_by,
        "network": params.backbone.title,
        "embedding": params.embedding,
        "folds": protocol.trained,
        "values": configure(run, params)[2],
    }


def rows_to_evaluate(table: Images, folds: list[classes.Fold], protocol: classes.Protocol) -> np.ndarray:
    """The test images; for `tuning` the training images of the held-out classes."""
    is_train = table.splits == "train"
    is_held_out = np.isin(table.labels, folds[0].validation) & is_train
    rows = np.flatnonzero(is_held_out if protocol.kind == "tuning" else ~is_train)
    if not len(rows):
        raise ValueError(f"there is no test image: the protocol {protocol.kind} needs images of unseen classes")
    return rows


def train(
    maps: Maps, fold: classes.Fold, table: Images, run: Run, params: Params, seed: int, work: Path
) -> tuple[Embedder, early_stopping.History]:
    """The embedder in its best state (with a backbone that trains), and its history."""
    loss, objective, values = configure(run, params)
    is_train, labels = table.splits == "train", table.labels
    taught = np.flatnonzero(is_train & np.isin(labels, fold.train))
    watched = np.flatnonzero(is_train & np.isin(labels, fold.validation) if len(fold.validation) else ~is_train)
    batches = ClassBatches(labels[taught], loss.batch_classes, loss.per_class, table.names)
    rows, targets = torch.from_numpy(taught), torch.from_numpy(np.searchsorted(fold.train, labels[taught]))
    torch.manual_seed(seed)  # layers and losses draw their start from the global generator
    backbone = maps.backbone if maps.backbone.is_trained else None
    sizes = (maps.shape[0], params.hidden, params.embedding, len(fold.train))
    current = Embedder(backbone, *sizes, run.pooling, values, objective).to(maps.where)
    current.train()  # batch norm that learns has seen no image yet: it normalises by the batch, as in the first step
    if current.has_prototypes:
        some = torch.randperm(len(taught), generator=torch.Generator().manual_seed(seed))[:START].numpy()
        current.start(torch.cat(list(maps.plain(taught[some]))), seed)
    groups = parameter_groups(current, params.learning_rate * loss.rate, loss.proxy_rate)
    optimizer = OPTIMIZERS[params.optimizer](groups, betas=(BETA1, params.beta2), weight_decay=params.weight_decay)

    def step(number: int, generator: torch.Generator) -> Tensor:
        drawn = batches.draw(generator)
        views = maps.train(rows[drawn], generator, is_frozen=number < loss.warmup)
        return current.loss_of(views, device.sent(targets[drawn], maps.where))

    def validate() -> float:
        scores = score(embed(current, maps, watched)[0], labels[watched], table.splits[watched])
        return scores[params.protocol.chosen_by]

    return current, early_stopping.fit(current, optimizer, params.stopping, step, validate, seed, work)


def main(
    images: Path, encoder: Path, output: Path, *, training: str, params: Params, lists: Lists, seed: int, shape: Shape
) -> str:
    item, table, pixels = lists.gsp_trainings[training], read_images(images), arrays.open(images / "pixels.zarr")
    spec = lists.gsp_runs[item.run]
    setting = setting_of(spec, params)
    folds = classes.folds(table.labels[table.splits == "train"], params.protocol)
    rows = rows_to_evaluate(table, folds, params.protocol)
    weights = {"encoder": [encoder], "file": [Path(params.backbone.path)]}.get(params.backbone.weights, [])
    work = checkpoint.work_folder("gsp_folds", training, [item, spec, params, seed, shape], [images, *weights])
    backbone = trunk.load(params.backbone, encoder, seed).to(device.best())
    whole = None
    if shape == "squash" and spec.images.startswith("images/"):  # a collage is a square already
        whole = Whole(torch.from_numpy(table.aspects), params.side / (params.resize or params.side))
    augmentation = (params.augmentation, params.crop_ratio)
    maps = Maps(backbone, pixels, params.side, *augmentation, params.precision, device.inference(params.side)[0], whole)
    fold, own_seed = folds[item.fold], seed * 10_007 + 101 * item.fold + item.repeat
    embedder, history = train(maps, fold, table, spec, params, own_seed, work / training)
    lines = [",".join(f"{value:.6g}" for value in row.values()) for row in history]
    config = {"run": spec.model_dump(), "setting": setting, "rows": rows.tolist(), "classes": fold.train.tolist()}
    with outputs.folder(output) as folder:
        write(folder, embedder, maps, rows)
        if item.fold == item.repeat == 0:
            write_pictures(folder, embedder, maps, rows, table.labels, PICTURES)
        header = f"step,loss,{params.protocol.chosen_by},rate"
        (folder / "history.csv").write_text("\n".join([header, *lines]) + "\n")
        (folder / "config.json").write_text(json.dumps(config) + "\n")
    return f"validation {params.protocol.chosen_by} {100 * max(row['score'] for row in history):.2f} %"


if __name__ == "__main__":
    command.run(main, Params, shape="images.shape")
