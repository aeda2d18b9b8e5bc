"""What one would try before Grappa on the same frozen encoder: random adaptors that learn from views, or a reduction.

Reads   images, encoder, features, knn_graph (for `tldr`), pseudo_labels (for `linear`)
Writes  weights.safetensors, config.json   one model
        history.csv                        epoch, loss

- `one_set`: one adaptor set, drawn at random, trained on pairs of views (M+A_1 of Table 2);
- `many_sets`: as many random sets as there are granularities, trained together with their fusion (M*(random));
- `tldr`: a linear reduction of the encoder's features, trained on pairs of neighbours (as TLDR does);
- `linear`: a linear map of them, trained to tell the finest pseudo-labels apart, as the adaptors are.
"""

from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from polygrain.compute import device, processes
from polygrain.compute.vectors import unit_rows
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.config import Attention
from polygrain.encoder.model import Model, load, save
from polygrain.encoder.views import ShareOfDraws
from polygrain.grappa import classification, twins
from polygrain.grappa.random_sets import insert_random
from polygrain.losses.norm_softmax import norm_softmax
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.collection import open_features, open_pixels, read_tables
from polygrain.training import checkpoint
from polygrain.training.history import write_history
from polygrain.training.loop import AdamSettings, Batch, Loader, Schedule, fit


class Tldr(twins.TwinSettings):
    """A linear reduction of the encoder's features, learnt from pairs of neighbours as TLDR does."""

    dim: schema.Width = Field(description="dimensions kept")
    neighbours: schema.Count = Field(description="the partner is drawn from this many nearest ones")


class Linear(AdamSettings):
    """A linear map of the encoder's features, learnt from the finest pseudo-labels with the norm-softmax loss."""

    gamma: schema.Factor = Field(description="scale of the cosines in the softmax")


class Params(schema.Section):
    width: schema.Width = Field(description="hidden units D' of each bottleneck")
    up_std: float = Field(
        ge=0, le=10, description="standard deviation of the up-projections at the start of random sets; 0: none"
    )
    one_set: twins.Pairs = Field(description="one random adaptor set")
    many_sets: twins.Pairs = Field(description="a random adaptor set for each granularity, with their fusion")
    tldr: Tldr
    linear: Linear


def reduce(
    model: Model, features: np.ndarray, graph: np.ndarray, params: Tldr, seed: int, work: Path
) -> tuple[Model, list[dict[str, int | float]]]:
    """The model with a linear reduction behind it, and the history; `features` and `graph` are of the training rows."""
    if params.dim > model.dim:
        raise ValueError(
            f"baseline.tldr.dim is {params.dim}; the encoder has {model.dim} dimensions: give that or less"
        )
    where = device.best()
    torch.manual_seed(seed)
    reduced = Model(model.config.model_copy(update={"reduced": params.dim}))
    reduced.backbone.load_state_dict(model.backbone.state_dict())
    mean = features.mean(0, dtype=np.float64).astype(np.float32)
    linear = nn.Linear(model.dim, params.dim, bias=False)
    projector = twins.build_projector(params.dim, params.projector)
    trained = nn.ModuleDict({"linear": linear, "projector": projector}).to(where)
    centred, table = torch.from_numpy(features - mean), twins.first_neighbours(graph, params.neighbours)

    def read(batch: Tensor) -> Tensor:
        return centred[batch]

    def views(stored: Tensor, is_second: bool, drawn: ShareOfDraws) -> Tensor:
        return device.sent(stored, where)

    history = twins.learn(trained, linear, read, views, len(centred), lambda epoch: table, params, seed, work)
    with torch.no_grad():
        weight = linear.weight.cpu()
        reduced.reduction.weight.copy_(weight)
        reduced.reduction.bias.copy_(-weight @ torch.from_numpy(mean))
    return reduced, history


def project(
    model: Model, features: np.ndarray, labels: np.ndarray, params: Linear, seed: int, work: Path
) -> tuple[Model, list[dict[str, int | float]]]:
    """The model with a linear map behind it, which begins as the identity; `labels` are of the rows of `features`."""
    where = device.best()
    # A cluster of a sample may have got no image of all: it is no class.
    vectors, targets = torch.from_numpy(features), torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    linear = nn.Linear(model.dim, model.dim, bias=False)
    nn.init.eye_(linear.weight)
    classifier = nn.ParameterList([nn.Parameter(classification.class_means(vectors, targets))])
    trained = nn.ModuleDict({"linear": linear, "classifier": classifier}).to(where)
    optimizer = classification.build_optimizer(trained, params)

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        mapped = linear(device.sent(vectors[batch.rows], where))
        classes = device.sent(targets[batch.rows], where)
        loss, accuracy = norm_softmax(mapped, classifier[0], classes, params.gamma)
        # Every process computes the whole batch.
        return {"loss": loss / processes.count(), "accuracy": accuracy / processes.count()}

    loader = Loader(len(vectors), params.batch, lambda epoch: lambda rows: None)
    history = fit(trained, optimizer, Schedule(params.epochs, params.warmup, 0.0), loader, step, seed, work)
    model.reduce(linear.weight.detach().cpu(), torch.zeros(model.dim))
    return model, history


def main(
    images: Path,
    encoder: Path,
    features: Path,
    knn_graph: Path,
    pseudo_labels: Path,
    output: Path,
    *,
    kind: str,
    params: Params,
    attention: Attention,
    lists: Lists,
    seed: int,
) -> str:
    model, tasks = load(encoder), list(lists.tasks)
    rows, chosen = read_tables(images, tasks).train, getattr(params, kind)
    values, reads = [chosen, seed], [encoder, *(images / task for task in tasks)]
    if kind in ("one_set", "many_sets"):
        count, pixels = 1 if kind == "one_set" else len(lists.trained), open_pixels(images, tasks)
        values += [params.width, params.up_std, count, attention]
        work = checkpoint.work_folder("baseline", kind, values, reads)
        parts = insert_random(model, count, params.width, attention, chosen.start_std, seed, params.up_std)
        history = twins.train(model, parts, pixels, rows, None, chosen, seed, work)
    else:
        vectors = open_features(features, tasks)
        if kind == "tldr":
            taught, name = knn_graph, "neighbours"
        else:
            taught, name = pseudo_labels / lists.trained[-1], "labels"
        table = arrays.open(taught / f"{name}.zarr")
        reads += [taught, *(features / task for task in tasks)]
        work = checkpoint.work_folder("baseline", kind, values, reads)
        given = unit_rows(vectors[rows].astype(np.float32)), table[:], chosen, seed, work
        model, history = reduce(model, *given) if kind == "tldr" else project(model, *given)
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder, ["epoch", "loss"])
    checkpoint.clear(work)
    return f"loss {history[0]['loss']:.3f} to {history[-1]['loss']:.3f}, {len(history)} epochs"


if __name__ == "__main__":
    command.run(main, Params, attention="fusion.attention")
