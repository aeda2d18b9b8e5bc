"""ONE model, chosen without labels: which adaptors, how strong, and which last layer.

Reads   images, encoder, resolution and what it saw, features, every adaptor set, fusion, distillation and teacher
Writes  weights.safetensors, config.json   the chosen model: strength folded in, whitening as its last layer
        README.md            its card
        criterion.csv        every candidate: its criterion on each task, agreement and cost, where it falls
        choice.json          what was chosen and why; criteria of encoder and chosen model with intervals; its images
        neighbours.parquet   sampled images: their nearest under the encoder and under the chosen model
        untrained/           the encoder in its best form by the same criterion: what adaptation has to beat

The encoder is a candidate: it is handed out where no other candidate is better, and where no task can be judged.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pyarrow.parquet as pq

from polygrain.compute import device
from polygrain.compute.vectors import unit_rows
from polygrain.config.lists import Lists
from polygrain.encoder.model import Model, blocks_for, load, save
from polygrain.encoder.stored import Followed, Stored, embed, open_features
from polygrain.retrieval import whitening
from polygrain.retrieval.smoothing import Smoothing
from polygrain.retrieval.smoothing_choice import SmoothingSettings
from polygrain.runner import command, outputs
from polygrain.selection import criterion, grain, seen
from polygrain.selection.candidates import card
from polygrain.selection.candidates.decision import decide
from polygrain.selection.candidates.forms import Form, add_last_layer, shape
from polygrain.selection.candidates.judges import Judging, Neighbours, Settings
from polygrain.selection.candidates.record import candidate_rows, neighbour_table, reasons, summary
from polygrain.selection.candidates.trial import ENCODER, compare
from polygrain.selection.criterion import Sample
from polygrain.selection.grain import Grains, fitted
from polygrain.selection.teaching import Targets, lessons, read_targets
from polygrain.store import arrays
from polygrain.store.collection import Collection, open_pixels, read_tables
from polygrain.store.tables import write_csv


class Params(Settings):
    def fits(self, lists: Lists) -> None:
        """ValueError for a task that is none."""
        if unknown := self.alike.keys() - lists.tasks.keys():
            raise ValueError(f"choice.alike names {min(unknown)!r}; known here: {', '.join(lists.tasks)}")


class Built(NamedTuple):
    """A model to hand out, its form, and the agreement of the grains that were compared for it, if any were."""

    model: Model
    form: Form
    grains: Grains | None = None


def build(
    folder: Path,
    form: Form,
    pixels: arrays.Reader,
    collection: Collection,
    params: Params,
    seed: int,
    targets: Mapping[str, Targets] = MappingProxyType({}),
    smoothings: Mapping[str, Smoothing] = MappingProxyType({}),
    features: Stored | None = None,
    can_tell: bool = True,
) -> Built:
    """The model of a form; its last layer is fitted anew, to all training images, and where it has a grain chosen.

    Where no task `can_tell` which model is better, the encoder stays as it is.
    """
    model, grains = load(folder), None
    shaped = shape(model, form)
    has_grain = bool(params.grain.axes) and can_tell and form.layer not in ("own", "taught")
    rows = collection.train if has_grain or form.layer in (*whitening.POWERS, "taught") else collection.train[:0]
    where = device.best()
    if features is not None and form.layer != "taught" and features.holds(shaped):
        embeddings = Followed(features, shape(model, form).to(where), rows)  # a copy, which stays without a last layer
    else:
        embeddings = embed(shaped.to(where), features, pixels, rows, "last layer")
    taught = {}
    if form.lesson:
        own = {form.lesson.by: targets[form.lesson.by]}
        taught = dict(lessons(own, collection.tasks[rows], smoothings, [form.lesson.smoothed]))
    if has_grain and (layers := fitted(embeddings, params.grain)):
        grains = grain.choose(embeddings, collection.tasks[rows], layers, params.alike, params.grain, seed)
        form = replace(form, layer=grains.layer, dim=layers[grains.layer].projection.shape[1])
    add_last_layer(shaped.cpu(), model.reduction, form, embeddings, taught)
    if grains is not None:
        shaped.config = shaped.config.model_copy(update={"grains": dict(grains.axes)})
    return Built(shaped, form, grains)


def neighbours_by(
    built: Built, sample: Sample, features: Stored | None, pixels: arrays.Reader, params: Params
) -> Neighbours:
    """Each sampled image's nearest others under a model with grains, by the grain of its task."""
    vectors = embed(built.model.to(device.best()), features, pixels, sample.rows, "neighbours")
    built.model.cpu()
    for task, places in sample.parts().items():
        vectors[places, built.grains.axes.get(task, built.model.dim) :] = 0
    return criterion.neighbours(unit_rows(vectors), sample, params.criterion.neighbours)


def main(
    images: Path,
    encoder: Path,
    resolution: Path,
    views: Path,
    features: Path,
    adaptor: Path,
    fusion: Path,
    distillation: Path,
    teacher: Path,
    output: Path,
    *,
    params: Params,
    cost: float,
    smoothing: SmoothingSettings,
    lists: Lists,
    seed: int,
) -> str:
    models = {"encoder": resolution} | {name: adaptor / name for name in lists.sizes}
    models |= {name: fusion / name for name in lists.fusions if name != "supervised"}
    models |= {f"distilled_{name}": distillation / name for name in lists.distillations}
    tasks = list(lists.tasks)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)

    stored, start = open_features(features, tasks), load(resolution)
    is_one = start.config.reduced or start.config.mirrored
    stored.require(start, 0 if is_one else blocks_for(start, params.blocks))
    targets = read_targets(teacher, list(lists.teachers))
    judging = Judging(params, cost, smoothing, targets, seed, seen.read(views), stored)
    trial = compare(models, encoder, pixels, collection, judging)
    judged = {name: one.judged for name, one in trial.candidates.items()}
    decision = decide(judged, ENCODER.name, trial.sample, params.errors, params.guard)
    forms = trial.candidates[decision.chosen].form, trial.best_of("encoder")
    given = pixels, collection, params, seed, judging.targets, trial.smoothings, stored, len(trial.sample.rows) > 0
    chosen, untrained = (build(encoder if form == ENCODER else models[form.model], form, *given) for form in forms)
    content = summary(trial, decision.chosen, reasons(trial, decision, params), collection)
    neighbours = trial.candidates[decision.chosen].neighbours
    if chosen.grains is not None:
        neighbours = neighbours_by(chosen, trial.sample, stored, pixels, params)
        content |= {"name": chosen.form.name, "form": asdict(chosen.form), "grains": chosen.grains.record()}
        content["why"].append(chosen.grains.why)
    with outputs.folder(output) as folder:
        save(chosen.model, folder)
        (folder / "untrained").mkdir()
        save(untrained.model, folder / "untrained")
        (folder / "README.md").write_text(card.text(chosen.model.config, content), encoding="utf-8")
        (folder / "choice.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        write_csv(folder / "criterion.csv", candidate_rows(trial, decision))
        pq.write_table(neighbour_table(trial, neighbours, collection), folder / "neighbours.parquet")
    return f"{chosen.form.name}, of {len(trial.candidates)} candidates"


if __name__ == "__main__":
    command.run(main, Params, cost="resolution.cost", smoothing="gallery.smoothing")
