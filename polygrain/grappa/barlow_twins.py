"""Learning from pairs of images with the Barlow Twins loss: two views of one, or an image and one of its neighbours.

What trains is up to the caller: the attention of a fusion, or whole adaptor sets.
"""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import Field
from timm.optim.lars import Lars
from torch import Tensor, nn

from polygrain.compute import device, processes
from polygrain.config.schema import Count, Decay, Epochs, Factor, Rate, Section, Warmup, Weight, Width
from polygrain.encoder.extract import embed_shares
from polygrain.encoder.model import Model
from polygrain.encoder.views import Augmentation, ShareOfDraws, augment
from polygrain.losses.barlow_twins import barlow_twins
from polygrain.retrieval.approximate import nearest_others
from polygrain.store import arrays
from polygrain.training import checkpoint
from polygrain.training.loop import Batch, Loader, Read, Schedule, fit
from polygrain.training.whole_batch import whole


class Pairs(Section):
    """Learning a fusion, or whole adaptor sets, from two views of each image as a pair, with the Barlow Twins loss."""

    epochs: Epochs = Field(description="epochs over the training images")
    batch: int = Field(ge=2, description="pairs of a batch")
    learning_rate: Rate = Field(description="of LARS, for 256 pairs; scaled with batch / 256")
    weight_decay: Decay = Field(description="of matrices; biases and norms have none")
    warmup: Warmup = Field(description="epochs in which the rate rises to its full value")
    beta: Weight = Field(description="weight of the off-diagonal correlations")
    scale: Factor = Field(description="factor on the loss; LARS takes it out of Q and K, the projector's norms feel it")
    projector: list[Width] = Field(min_length=1, max_length=20, description="widths of the throw-away projector")

    start_std: float = Field(gt=0, le=10, description="standard deviation of Q and K at the start")
    precision: device.Precision
    augmentation: Augmentation = Field(description="of each image, drawn anew in each epoch")


class NeighbourPairs(Pairs):
    """Learning a fusion from pairs of an image and one of its nearest neighbours."""

    neighbours: Count = Field(description="nearest images from which the partner is drawn")
    refresh: bool = Field(
        description="rebuild the graph before every epoch but the first; false keeps it (the static variant)"
    )


def build_projector(dim: int, widths: list[int]) -> nn.Sequential:
    """Linear, batch norm, ReLU for each width; the last is linear alone. No biases, as in Barlow Twins."""
    layers: list[nn.Module] = []
    for width in widths[:-1]:
        layers += [nn.Linear(dim, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        dim = width
    return nn.Sequential(*layers, nn.Linear(dim, widths[-1], bias=False))


def build_optimizer(trained: nn.Module, params: Pairs) -> Lars:
    """LARS as Barlow Twins uses it: no decay and no layer-wise rate for biases and norms.

    All others have a layer-wise rate whatever the decay is; timm's LARS would be plain SGD at a decay of 0.
    """
    # The biases of several adaptors are the rows of one array, so the number of dimensions does not tell a bias.
    plain = {name for name, p in trained.named_parameters() if name.endswith("bias") or p.ndim <= 1}
    weights = [p for name, p in trained.named_parameters() if name not in plain]
    others = [p for name, p in trained.named_parameters() if name in plain]
    groups = [{"params": weights, "always_adapt": True}, {"params": others, "weight_decay": 0.0}]
    rate = params.learning_rate * params.batch / 256
    return Lars(groups, lr=rate, momentum=0.9, weight_decay=params.weight_decay, trust_coeff=1e-3)


def first_neighbours(graph: np.ndarray, count: int) -> Tensor:
    """The `count` nearest rows of every row, from a graph `row neighbour`; ValueError where it has fewer."""
    if count > graph.shape[1]:
        raise ValueError(
            f"partners are to be drawn from {count} neighbours, the graph has {graph.shape[1]} of each image: "
            f"set knn_graph.neighbours to {count} or more, or lower `neighbours` of the fusion"
        )
    return torch.from_numpy(graph[:, :count])


def kept_graphs(work: Path, epochs: int) -> Int64[np.ndarray, "epoch image rank"]:
    """The graph of each epoch of a training that rebuilds it, as `train` has left them in its folder."""
    return np.stack([checkpoint.read(work / f"graph{epoch}.safetensors")["graph"].numpy() for epoch in range(epochs)])


def train(
    model: Model,
    parts: nn.Module,
    pixels: arrays.Reader,
    rows: np.ndarray,
    graph: arrays.Reader | None,
    params: Pairs,
    seed: int,
    work: Path,
    search: tuple[str, float] = ("exact", 1.0),
) -> list[dict[str, int | float]]:
    """Trains the `parts` of a model (and a throw-away projector) on pairs of images. No graph: two views of each.

    `search`: the index that rebuilds the graph, and the recall wanted of it.
    """
    where = device.best()
    torch.manual_seed(seed)  # for the projector's start
    projector = build_projector(model.dim, params.projector)
    trained = nn.ModuleDict({"attention": parts, "projector": projector}).requires_grad_(True).to(where)
    model.to(where)
    count, refresh = (params.neighbours, params.refresh) if isinstance(params, NeighbourPairs) else (0, False)
    table = None if graph is None else first_neighbours(graph[:], count)

    def prepare(epoch: int) -> Read:
        nonlocal table
        if refresh and epoch > 0:
            embeddings = embed_shares(model, pixels, rows, params.batch, params.precision, "graph")
            rebuilt = nearest_others(embeddings, count, *search, metric="inner_product")
            table = torch.from_numpy(rebuilt.neighbours)
        if refresh and table is not None and processes.rank() == 0:
            checkpoint.write(work / f"graph{epoch}.safetensors", {"graph": table})
        return lambda batch: read(batch[processes.share(len(batch))])

    def read(batch: Tensor) -> Tensor:
        return device.staged(pixels[rows[batch.numpy()]], where)

    def views(stored: Tensor, drawn: ShareOfDraws) -> Tensor:
        return augment(stored.to(where, non_blocking=True), model.config.size, params.augmentation, drawn)

    def step(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        # Every process draws for the whole batch, and reads and takes through the model its share of the pairs.
        mine, drawn = processes.share(len(batch.rows)), ShareOfDraws(generator, len(batch.rows))
        first = second = batch.content
        if table is not None:
            choice = torch.randint(table.shape[1], (len(batch.rows), 1), generator=generator)
            second = read(table[batch.rows[mine]].gather(1, choice[mine]).squeeze(1))
        pairs = torch.cat([views(first, drawn), views(second, drawn)])
        with device.autocast(where, params.precision):
            features = model.features(pairs)
        # Each half goes through the projector alone: its batch norm must not see both members of a pair at once.
        first, second = (projector(whole(half)) for half in features.float().chunk(2))
        # Every process has the loss of the whole batch, so its part of their sum is one by their number.
        return {"loss": params.scale * barlow_twins(first, second, params.beta) / processes.count()}

    loader, schedule = Loader(len(rows), params.batch, prepare), Schedule(params.epochs, params.warmup, 0.001)
    return fit(trained, build_optimizer(trained, params), schedule, loader, step, seed, work)
