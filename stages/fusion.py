"""The adaptor sets side by side in one model: averaged, or fused by an attention that learns from pairs of images.

Reads   images, adaptor/<every granularity>, knn_graph (for `neighbour`)
Writes  weights.safetensors, config.json   one model
        history.csv                        epoch, loss (no row for `average`, which has nothing to learn)

Pairs are two views of an image (`augmentation`), or an image and one of its nearest neighbours (`neighbour`); the graph
of neighbours is rebuilt from the model itself before every epoch but the first, which takes the encoder's graph.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from timm.optim import Lars
from torch import Tensor, nn

from stages.core import checkpoint, command, device, outputs, store
from stages.core.adaptors import Fusion, fuse
from stages.core.augment import Augmentation, augment
from stages.core.collection import open_pixels, read_tables
from stages.core.extract import embed
from stages.core.loop import Schedule, fit, write_history
from stages.core.losses.barlow_twins import barlow_twins
from stages.core.model import AdaptorConfig, Model, load, save
from stages.core.neighbours import nearest


class Pairs(command.Section):
    epochs: int = Field(ge=1)
    batch: int = Field(ge=2, description="pairs")
    learning_rate: float = Field(gt=0, description="LARS, before the scaling with batch / 256")
    weight_decay: float = Field(ge=0)
    warmup: float = Field(ge=0, description="epochs")
    beta: float = Field(ge=0, description="weight of the off-diagonal correlations")
    scale: float = Field(
        gt=0, description="factor on the loss; LARS takes it out of Q and K, the projector's norms feel it"
    )
    start_std: float = Field(gt=0, description="standard deviation of Q and K at the start")
    projector: list[int] = Field(min_length=1, description="widths of the throw-away projector")
    precision: device.Precision
    augmentation: Augmentation


class NeighbourPairs(Pairs):
    neighbours: int = Field(ge=1, description="the partner is drawn from this many nearest ones")
    refresh: bool = Field(description="rebuild the graph every epoch; false keeps the encoder's (the static variant)")


class Params(command.Section):
    average: None
    augmentation: Pairs
    neighbour: NeighbourPairs


Partners = Callable[[Tensor, torch.Generator], Tensor]


def merge(models: list[Model], names: list[str], fusion: Fusion, generator: torch.Generator, std: float) -> Model:
    """One model with all adaptor sets in every block; the encoder below must be the same in all."""
    widths = {model.config.adaptors.width for model in models}
    if len(widths) > 1:
        raise ValueError(
            f"the adaptor sets have different widths {sorted(widths)}; reproduce them all with one adaptor.width"
        )
    layers = fuse([model.adaptors for model in models], fusion, generator, std)
    fused = Model(models[0].config.model_copy(update={"adaptors": None}))
    fused.backbone.load_state_dict(
        {
            name.replace(".block.", "."): value
            for name, value in models[0].backbone.state_dict().items()
            if ".adaptors." not in name
        }
    )
    fused.insert(layers, AdaptorConfig(names=names, width=widths.pop(), fusion=fusion))
    return fused.requires_grad_(False).eval()


def build_projector(dim: int, widths: list[int]) -> nn.Sequential:
    """Linear, batch norm, ReLU for each width; the last is linear alone. No biases, as in Barlow Twins."""
    layers: list[nn.Module] = []
    for width in widths[:-1]:
        layers += [nn.Linear(dim, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        dim = width
    return nn.Sequential(*layers, nn.Linear(dim, widths[-1], bias=False))


def build_optimizer(trained: nn.Module, params: Pairs) -> Lars:
    """LARS as Barlow Twins uses it: no decay and no layer-wise rate for vectors (batch norms)."""
    matrices = [p for p in trained.parameters() if p.ndim > 1]
    vectors = [p for p in trained.parameters() if p.ndim <= 1]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    rate = params.learning_rate * params.batch / 256
    return Lars(groups, lr=rate, momentum=0.9, weight_decay=params.weight_decay, trust_coeff=1e-3)


def train(
    model: Model,
    pixels: store.Reader,
    rows: np.ndarray,
    graph: store.Reader | None,
    params: Pairs,
    seed: int,
    work: Path,
) -> list[dict[str, int | float]]:
    """Trains Q and K of every layer (and the projector) on pairs; returns the history. No graph: two views of each."""
    where = device.best()
    torch.manual_seed(seed)  # for the projector's start
    attention = nn.ModuleList([nn.ModuleList([layer.query, layer.key]) for layer in model.adaptors])
    projector = build_projector(model.dim, params.projector)
    trained = nn.ModuleDict({"attention": attention, "projector": projector}).requires_grad_(True).to(where)
    model.to(where)
    neighbours = torch.from_numpy(graph[:][:, : params.neighbours]) if graph is not None else None

    def start_epoch(epoch: int) -> None:
        nonlocal neighbours
        if graph is not None and params.refresh and epoch > 0:
            embeddings = embed(model, pixels, rows, params.batch, params.precision, "graph")
            neighbours = torch.from_numpy(nearest(embeddings, embeddings, params.neighbours, exclude_self=True)[1])

    def view(batch: Tensor, generator: torch.Generator) -> Tensor:
        images = torch.from_numpy(pixels[rows[batch.numpy()]]).to(where, non_blocking=True)
        return augment(images, model.config.size, params.augmentation, generator)

    def step(batch: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        partners = batch
        if neighbours is not None:
            choice = torch.randint(neighbours.shape[1], (len(batch),), generator=generator)
            partners = neighbours[batch, choice]
        views = torch.cat([view(batch, generator), view(partners, generator)])
        with device.autocast(where, params.precision):
            tokens = model.features(views)
        # Each half goes through the projector alone: its batch norm must not see both members of a pair at once.
        first, second = (projector(half) for half in tokens.float().chunk(2))
        return {"loss": params.scale * barlow_twins(first, second, params.beta)}

    schedule = Schedule(params.epochs, params.warmup, 0.001)
    optimizer = build_optimizer(trained, params)
    return fit(trained, optimizer, schedule, len(rows), params.batch, seed, step, work, start_epoch)


def main(
    images: Path,
    adaptor: Path,
    knn_graph: Path,
    output: Path,
    *,
    pairs: str,
    params: Params,
    lists: command.Lists,
    seed: int,
) -> str:
    names, tasks = list(lists.sizes), list(lists.tasks)
    sets = [load(adaptor / name) for name in names]
    chosen: Pairs | None = getattr(params, pairs)
    generator = torch.Generator().manual_seed(seed)
    fusion: Fusion = "average" if chosen is None else "attention"
    model = merge(sets, names, fusion, generator, chosen.start_std if chosen else 0.0)
    history, work = [], None
    if chosen is not None and len(names) > 1:
        pixels, rows = open_pixels(images, tasks), read_tables(images, tasks).train
        graph = store.open(knn_graph / "neighbours.zarr") if pairs == "neighbour" else None
        inputs = [chosen, seed, pixels.digest, graph.digest if graph else "", *names]
        inputs += [checkpoint.digest(adaptor / name / "weights.safetensors") for name in names]
        work = checkpoint.work_folder("fusion", pairs, *inputs)
        history = train(model, pixels, rows, graph, chosen, seed, work)
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder / "history.csv", ["epoch", "loss"])
    if work is not None:
        checkpoint.clear(work)
    learnt = f"loss {history[0]['loss']:.3f} to {history[-1]['loss']:.3f}" if history else "nothing to learn"
    return f"{len(names)} adaptor sets in one model, {learnt}"


if __name__ == "__main__":
    command.run(main, Params)
