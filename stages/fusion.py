"""The adaptor sets side by side in one model: averaged, or fused by an attention that learns.

Reads   images, adaptor/<every granularity>, refreshed_graph (for `neighbour`) or knn_graph (for `static`)
Writes  weights.safetensors, config.json   one model
        history.csv                        epoch, loss (no row for `average`, which has nothing to learn), and where the
                                           graph is rebuilt turnover: the share of neighbours new in this epoch, in
                                           the first one new against the encoder's graph
        moved.csv                          layer, query, key: how far Q and K went, in shares of their start (likewise)

The attention learns from pairs: two views of an image (`augmentation`), or an image and one of its nearest neighbours
(`neighbour`). The graph of neighbours is that of the average fusion in the first epoch, and rebuilt from the model
before every other; `static` keeps the encoder's. As an upper bound, it learns from true labels (`supervised`, Table 5).

Several processes share the training: POLYGRAIN_PROCESSES, or POLYGRAIN_TORCHRUN on several machines.
"""

from itertools import pairwise, starmap
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from polygrain.compute import device
from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.config import Attention, Fusion
from polygrain.encoder.extract import embed_shares
from polygrain.encoder.model import Model, load, merge, save
from polygrain.grappa import barlow_twins, classification
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.graphs import search_of, turnover
from polygrain.store.image_table import open_pixels, read_tables
from polygrain.store.reading import read_json
from polygrain.store.tables import write_csv
from polygrain.training import checkpoint
from polygrain.training.history import write_history


class Supervised(classification.ClassifierSettings):
    """An upper bound: Q and K learn from true labels."""

    start_std: float = Field(gt=0, le=10, description="standard deviation of Q and K at the start")


class Params(schema.Section):
    attention: Attention = Field(description="of every fusion but the average")
    average: None = Field(description="the mean of the adaptor sets has nothing to learn")
    augmentation: barlow_twins.Pairs = Field(description="Q and K learn from two views of each image")
    neighbour: barlow_twins.NeighbourPairs = Field(
        description="Q and K learn from an image and one of its nearest neighbours"
    )
    static: barlow_twins.NeighbourPairs = Field(description="as `neighbour`, on the encoder's graph in every epoch")
    supervised: Supervised


Learning = barlow_twins.Pairs | Supervised


def train(
    model: Model,
    images: Path,
    tasks: list[str],
    graph: arrays.Reader | None,
    chosen: Learning,
    seed: int,
    work: Path,
    search: tuple[str, float],
) -> list[dict[str, int | float]]:
    """Trains Q and K of every layer, and nothing else that stays in the model; returns the history."""
    parts = nn.ModuleList([nn.ModuleList([layer.query, layer.key]) for layer in model.adaptors])
    pixels, collection = open_pixels(images, tasks), read_tables(images, tasks)
    rows = collection.train
    if isinstance(chosen, barlow_twins.Pairs):
        return barlow_twins.train(model, parts, pixels, rows, graph, chosen, seed, work, search)
    labels = torch.from_numpy(collection.train_classes())
    model.to(device.best())
    embeddings = embed_shares(model, pixels, rows, chosen.batch, chosen.precision, "class means")
    start = classification.class_means(torch.from_numpy(embeddings), labels)
    return classification.train(model, parts, start, pixels, torch.from_numpy(rows), labels, chosen, seed, work)


def projections(model: Model) -> list[tuple[Tensor, Tensor]]:
    """Copies of Q and K of each layer; empty without an attention."""
    attending = [layer for layer in model.adaptors if layer.fusion == "attention"]
    return [(layer.query.weight.detach().cpu().clone(), layer.key.weight.detach().cpu().clone()) for layer in attending]


def moved(start: list[tuple[Tensor, Tensor]], end: list[tuple[Tensor, Tensor]]) -> list[list]:
    """For each layer, from 0, |end - start| / |start| of Q and of K: near 0 the attention is as it was drawn."""
    rows = []
    for layer, pair in enumerate(zip(start, end, strict=True)):
        shares = [((after - before).norm() / before.norm()).item() for before, after in zip(*pair, strict=True)]
        rows.append([layer, *(float(f"{share:.6g}") for share in shares)])
    return rows


def main(
    images: Path, adaptor: Path, partners: Path, output: Path, *, pairs: str, params: Params, lists: Lists, seed: int
) -> str:
    names, tasks = lists.trained, list(lists.tasks)
    sets = [load(adaptor / name) for name in names]
    chosen: Learning | None = getattr(params, pairs)
    generator = torch.Generator().manual_seed(seed)
    fusion: Fusion = "average" if chosen is None else "attention"
    model = merge(sets, names, fusion, generator, chosen.start_std if chosen else 0.0, params.attention)
    history, start = [], projections(model)
    if chosen is not None and len(names) > 1:
        graph, search = None, ("exact", 1.0)
        if isinstance(chosen, barlow_twins.NeighbourPairs):
            graph, search = arrays.open(partners / "neighbours.zarr"), search_of(partners)
        reads = [adaptor / name for name in names] + [images / task for task in tasks]
        reads += [partners] if graph is not None else []
        work = checkpoint.work_folder("fusion", pairs, [chosen, params.attention, seed, *names], reads)
        history = train(model, images, tasks, graph, chosen, seed, work, search)
    columns = ["epoch", "loss"]
    if history and isinstance(chosen, barlow_twins.NeighbourPairs) and chosen.refresh:
        graphs = barlow_twins.kept_graphs(work, len(history))
        turnovers = [read_json(partners / "summary.json")["turnover"], *starmap(turnover, pairwise(graphs))]
        for row, share in zip(history, turnovers, strict=True):
            row["turnover"] = share
        columns.append("turnover")
    with outputs.folder(output) as folder:
        save(model, folder)
        write_history(history, folder, columns)
        write_csv(folder / "moved.csv", [["layer", "query", "key"], *moved(start, projections(model))])
    learnt = f"loss {history[0]['loss']:.3f} to {history[-1]['loss']:.3f}" if history else "nothing to learn"
    return f"{counted(len(names), 'adaptor set')} in one model, {learnt}"


if __name__ == "__main__":
    command.run(main, Params)
