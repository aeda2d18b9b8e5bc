"""ONE model, chosen without labels: which adaptors, which last layer, and how collections are compared.

Reads   images, encoder, resolution and what it saw, features, seeds, pseudo-labels and scatters, every adaptor set
        and fusion
Writes  weights.safetensors, config.json   the recommended model, its last layer in closed form
        comparisons.json     how each task's images are compared: their mean, how they are smoothed
        README.md            its card
        criterion.csv        every candidate: its criterion on each task, agreement and cost, where it falls
        choice.json          what was chosen and why; criteria of both models with intervals; its images
        neighbours.parquet   sampled images: their nearest under the encoder and under the recommended model
        without_training/    the best form of the encoder by the same criterion: training has to beat it

The encoder is a candidate: it is handed out where no other candidate is better, and where no task can be judged.
"""

import csv
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch

from polygrain.collection.postprocessing.comparison import Comparison, choose
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.strength import SmoothingSettings
from polygrain.compute import device
from polygrain.compute.counted import counted
from polygrain.config.lists import Lists
from polygrain.encoder.model import Model, blocks_for, load, save
from polygrain.encoder.stored import Stored, embed, open_features
from polygrain.fisher.granularities import Granularities, read_basis, read_scatters
from polygrain.retrieval.whitening import Affine, to_length
from polygrain.runner import command, outputs
from polygrain.selection import seen
from polygrain.selection.candidates import report
from polygrain.selection.candidates.search import ENCODER, Candidate, Evaluator, Settings, compare, decide
from polygrain.store import arrays
from polygrain.store.image_table import ImageTable, open_pixels, read_tables
from polygrain.store.tables import write_csv


class Params(Settings):
    def fits(self, lists: Lists) -> None:
        """ValueError for a task that is none."""
        if unknown := self.alike.keys() - lists.tasks.keys():
            raise ValueError(f"choice.alike names {min(unknown)!r}; known here: {', '.join(lists.tasks)}")


class Reads(NamedTuple):
    """The folders of the stages before this one."""

    images: Path
    encoder: Path
    resolution: Path
    views: Path
    features: Path
    seeds: Path
    pseudo_labels: Path
    scatter: Path
    adaptor: Path
    fusion: Path


class World(NamedTuple):
    """The images, and their stored outputs of the encoder."""

    reads: Reads
    collection: ImageTable
    pixels: arrays.Reader
    stored: Stored
    seen: seen.Seen
    granularities: Granularities

    @classmethod
    def of(cls, reads: Reads, lists: Lists, params: Params) -> "World":
        tasks = list(lists.tasks)
        collection, pixels = read_tables(reads.images, tasks), open_pixels(reads.images, tasks)
        granularities = read_granularities(reads, collection, lists, params)
        return cls(
            reads, collection, pixels, open_features(reads.features, tasks), seen.read(reads.views), granularities
        )


def read_granularities(reads: Reads, collection: ImageTable, lists: Lists, params: Params) -> Granularities:
    """The clusters of the training images, of those that were clustered."""
    rows = np.arange(len(collection.train))
    if params.layer == "none":
        return Granularities(rows, collection.tasks[collection.train], {}, params.dim)
    if (reads.seeds / "sample.zarr").exists():
        rows = arrays.open(reads.seeds / "sample.zarr")[:]
    labels = {name: arrays.open(reads.pseudo_labels / name / "labels.zarr")[:][rows] for name in lists.granularities}
    return Granularities(rows, collection.tasks[collection.train[rows]], labels, params.dim)


def build(folder: Path, candidate: Candidate, world: World, params: Params) -> Model:
    """The model of a candidate, with its last layer."""
    model, form = load(folder), candidate.form
    shaped = model.without_reduction(form.blocks)
    if form.layer == "own":
        shaped.reduce(model.reduction.weight, model.reduction.bias)
    if form.layer != "clusters":
        return shaped if params.dim is None else at_length(shaped, world, params.dim)
    fitted = layer_of_encoder(shaped.to(device.best()), world, params) or candidate.layer
    assert fitted is not None
    shaped.cpu().reduce(torch.from_numpy(fitted.projection.T.copy()), torch.from_numpy(fitted.bias))
    return shaped


def at_length(model: Model, world: World, dim: int) -> Model:
    """A model without a layer from clusters, turned onto `dim` principal axes."""
    rows = world.collection.train[world.granularities.rows] if dim < model.dim else np.empty(0, np.int64)
    vectors = embed(model.to(device.best()), world.stored, world.pixels, rows, "length")
    turn, layer = torch.from_numpy(to_length(vectors, dim)).T, model.cpu().reduction
    if isinstance(layer, torch.nn.Linear):
        model.reduce(turn @ layer.weight, turn @ layer.bias)
    else:
        model.reduce(turn, torch.zeros(dim))
    return model


def layer_of_encoder(model: Model, world: World, params: Params) -> Affine | None:
    """The layer behind the encoder itself, from the scatters that were stored; None for another model."""
    given, basis = world.granularities, read_basis(world.reads.seeds)
    is_its = world.stored.holds(model) and len(model.widths) == blocks_for(model, params.blocks)
    if basis is None or not is_its:
        return None
    known = basis, read_scatters(world.reads.scatter, list(given.labels))
    views = world.seen.embed(model, world.pixels, params.criterion).stacked()
    return given.fit(np.empty((0, model.dim), np.float32), views, known)


def comparisons(model: Model, world: World, params: Params, smoothing: SmoothingSettings) -> Comparisons:
    """The comparison of each task, chosen by its searched images: those that are no query, or train."""
    collection, where = world.collection, device.best()
    searched = ~collection.is_query | collection.is_train
    model.to(where)
    tasks = {}
    for task in dict.fromkeys(collection.tasks):
        own = collection.tasks == task
        rows = np.flatnonzero(own & searched) if (own & searched).any() else np.flatnonzero(own)
        vectors = embed(model, world.stored, world.pixels, rows, "comparisons")
        tasks[task], _ = choose(vectors, params.alike.get(task), smoothing, front=model.in_front)
    model.cpu()
    known = [one.mean for one in tasks.values() if one.mean]
    return Comparisons(tasks, Comparison(tuple(np.mean(known, 0, dtype=np.float64).tolist()) if known else ()))


def main(reads: Reads, output: Path, *, params: Params, smoothing: SmoothingSettings, lists: Lists) -> str:
    models = {"encoder": reads.resolution} | {name: reads.adaptor / name for name in lists.trained}
    models |= {name: reads.fusion / name for name in lists.fusions if name != "supervised"}
    world, start = World.of(reads, lists, params), load(reads.resolution)
    collection, granularities = world.collection, world.granularities
    is_one = start.config.reduced or start.config.mirrored
    world.stored.require(start, 0 if is_one else blocks_for(start, params.blocks))
    evaluator = Evaluator(params, collection, world.seen, granularities, world.stored)
    search = compare(models, reads.encoder, world.pixels, evaluator)
    scores = {name: one.scores for name, one in search.candidates.items()}
    decision = decide(scores, ENCODER.name, search.sample, params.errors, params.guard)
    taken = search.candidates[decision.chosen]
    recommended = build(reads.encoder if taken.form == ENCODER else models[taken.form.model], taken, world, params)
    best = search.best_of("encoder")
    without_training = build(reads.encoder if best.form == ENCODER else reads.resolution, best, world, params)
    why = report.reasons(search, decision, params)
    with (reads.views / "recall.csv").open(newline="", encoding="utf-8") as file:
        why += report.about_sides(list(csv.DictReader(file)))
    if taken.form.layer == "clusters":
        why.insert(0, report.about_layer(list(granularities.labels)))
    content = report.summary(search, decision.chosen, why, collection)
    with outputs.folder(output) as folder:
        (folder / "without_training").mkdir()
        for model, place in ((recommended, folder), (without_training, folder / "without_training")):
            save(model, place)
            comparisons(model, world, params, smoothing).write(place)
        (folder / "README.md").write_text(report.card(recommended.config, content), encoding="utf-8")
        (folder / "choice.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        write_csv(folder / "criterion.csv", report.candidate_rows(search, decision))
        pq.write_table(report.neighbour_table(search, taken.neighbours, collection), folder / "neighbours.parquet")
    return f"recommends {taken.form.name}, from {counted(len(search.candidates), 'candidate')}"


if __name__ == "__main__":
    command.run(main, Params, smoothing="gallery.smoothing")
