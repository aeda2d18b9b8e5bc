"""What one would try before Grappa on the same frozen encoder: random adaptors that learn from views, or one layer.

Reads   images, encoder, features, knn_graph (for `tldr`), pseudo_labels (for `closed_form`)
Writes  weights.safetensors, config.json   one model
        history.csv                        epoch, loss (no row for `closed_form`, which has no epochs)

- `one_set`: one adaptor set, drawn at random, trained on pairs of views (M+A_1 of Table 2);
- `many_sets`: as many random sets as there are granularities, trained together with their fusion (M*(random));
- `tldr`: a linear reduction of the encoder's features, trained on pairs of neighbours (as TLDR does);
- `closed_form`: a linear layer of them by the pseudo-labels of all granularities, in closed form (polygrain/fisher).
"""

from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from polygrain.compute import device
from polygrain.compute.vectors import unit_rows
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.config import Attention
from polygrain.encoder.model import Model, load, save
from polygrain.encoder.views import ShareOfDraws
from polygrain.fisher.granularities import Granularities
from polygrain.grappa import twins
from polygrain.grappa.random_sets import insert_random
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.collection import open_features, open_pixels, read_tables
from polygrain.training import checkpoint
from polygrain.training.history import write_history


class Tldr(twins.TwinSettings):
    """A linear reduction of the encoder's features, learnt from pairs of neighbours as TLDR does."""

    dim: schema.Width = Field(description="dimensions kept")
    neighbours: schema.Count = Field(description="the partner is drawn from this many nearest ones")


class Params(schema.Section):
    width: schema.Width = Field(description="hidden units D' of each bottleneck")
    up_std: float = Field(
        ge=0, le=10, description="standard deviation of the up-projections at the start of random sets; 0: none"
    )
    one_set: twins.Pairs = Field(description="one random adaptor set")
    many_sets: twins.Pairs = Field(description="a random adaptor set for each granularity, with their fusion")
    tldr: Tldr
    closed_form: None = Field(description="nothing to set")


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


def project(model: Model, features: np.ndarray, labels: dict[str, np.ndarray]) -> None:
    """Puts the layer of these clusters behind the model, which know no tasks, as in the paper."""
    fitted = Granularities(np.arange(len(features)), np.zeros(len(features)), labels).fit(features, None)
    if fitted is None:
        raise ValueError("all training images have the same features: there is nothing to tell apart")
    model.reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))


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
    history, work = [], None
    if kind in ("one_set", "many_sets"):
        count, pixels = 1 if kind == "one_set" else len(lists.trained), open_pixels(images, tasks)
        values += [params.width, params.up_std, count, attention]
        work = checkpoint.work_folder("baseline", kind, values, reads)
        parts = insert_random(model, count, params.width, attention, chosen.start_std, seed, params.up_std)
        history = twins.train(model, parts, pixels, rows, None, chosen, seed, work)
    else:
        vectors = unit_rows(open_features(features, tasks)[rows].astype(np.float32))
        if kind == "closed_form":
            labels = {name: arrays.open(pseudo_labels / name / "labels.zarr")[:] for name in lists.granularities}
            project(model, vectors, labels)
        else:
            reads += [knn_graph, *(features / task for task in tasks)]
            work = checkpoint.work_folder("baseline", kind, values, reads)
            graph = arrays.open(knn_graph / "neighbours.zarr")[:]
            model, history = reduce(model, vectors, graph, chosen, seed, work)
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder, ["epoch", "loss"])
    if work is None:
        return f"{model.dim} axes by {len(lists.granularities)} granularities"
    checkpoint.clear(work)
    return f"loss {history[0]['loss']:.3f} to {history[-1]['loss']:.3f}, {len(history)} epochs"


if __name__ == "__main__":
    command.run(main, Params, attention="fusion.attention")
