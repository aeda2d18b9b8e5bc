"""ONE model, chosen without labels: which adaptors, how strong, and which last layer.

Reads   images, encoder, resolution, every adaptor set, fusion, distillation and teacher
Writes  weights.safetensors, config.json   the chosen model: strength folded in, whitening as its last layer
        README.md            its card
        criterion.csv        every candidate: its criterion on each task or cluster, agreement and cost, where it falls
        choice.json          what was chosen and why; criteria of encoder and chosen model with intervals; its images
        neighbours.parquet   sampled images: their nearest under the encoder and under the chosen model
        untrained/           the encoder in its best form by the same criterion: what adaptation has to beat

The encoder is a candidate: it is handed out where nothing is better, and where no task can tell.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int
from pydantic import Field

from polygrain.compute import device
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.extract import embed
from polygrain.encoder.model import Model, load, most_blocks, save
from polygrain.retrieval.smoothing import Smoothing
from polygrain.runner import command, outputs
from polygrain.selection import criterion
from polygrain.selection.candidates import card
from polygrain.selection.candidates.decision import Decision, Judged, decide, interval
from polygrain.selection.candidates.forms import Form, add_last_layer, shape, with_last_layers, with_lessons
from polygrain.selection.questions import Questions, Searched, ask
from polygrain.selection.smoothing import SETTINGS, SmoothingSettings
from polygrain.selection.teaching import Lesson, Targets, lessons, read_targets
from polygrain.store import arrays
from polygrain.store.collection import Collection, open_pixels, read_tables
from polygrain.store.tables import write_csv

ENCODER = Form("encoder")


class Params(schema.Section):
    criterion: criterion.CriterionSettings
    reference: criterion.Reference = Field(description="whose neighbours should be kept")
    first_strength: float = Field(gt=0, le=1, description="share of what adaptors add at which all models are compared")
    strengths: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        max_length=20, description="at which the finalists are measured, too"
    )
    finalists: schema.Count = Field(description="models, the best by the criterion, that are looked at further")
    taught: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        max_length=20,
        description="what a last layer learns of teachers: their embeddings (0), these smoothed (1), or both",
    )
    searched: list[Searched] = Field(
        min_length=1, description="the collection as candidates are compared in it, where there are teachers"
    )
    layers: list[Literal["half", "full"]] = Field(max_length=2, description="whitenings tried behind each model")
    dims: list[schema.Width] = Field(max_length=20, description="to which they reduce")
    fitted: int = Field(
        ge=2,
        le=10_000_000,
        description="training images, at most, to which a candidate's whitening is fitted; all, for what is handed out",
    )
    blocks: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        min_length=1,
        max_length=20,
        description="outputs that are whitened side by side: the last block's, and those of blocks before it",
    )
    mirrored: bool = Field(
        description="try the mean with the mirror image's embedding, where resolution.cost allows it"
    )
    errors: float = Field(
        ge=0, le=100, description="standard errors within which candidates count as equal: the gentlest wins"
    )
    guard: float = Field(ge=0, le=100, description="standard errors by which no task may fall below the encoder")

    def fits(self, lists: Lists) -> None:
        """ValueError for teachers where nobody knows tasks."""
        if lists.teachers and self.criterion.groups != "tasks":
            raise ValueError(
                "choice.criterion.groups is clusters, but teachers answer within tasks: use tasks, or none"
            )


@dataclass(frozen=True)
class Candidate:
    """A form with its criterion, and each sampled image's nearest others under it, by task."""

    form: Form
    judged: Judged
    neighbours: dict[str, np.ndarray]


@dataclass(frozen=True)
class Trial:
    """The sample on which candidates are compared, the training rows to fit whitenings to, and the candidates by name.

    `reference` has each image's nearest others under the reference, by task. With teachers, `questions` judge: the
    sample asks the other `fitted` images, from which last layers learn `lessons`.
    """

    sample: criterion.Sample
    fitted: Int[np.ndarray, " row"]
    reference: dict[str, np.ndarray]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    questions: Questions | None = None
    lessons: list[tuple[Lesson, Targets]] = field(default_factory=list)

    def value(self, name: str) -> float:
        """The criterion of a candidate."""
        return criterion.mean_over_tasks(self.candidates[name].judged.score, self.sample)

    def best_of(self, model: str, scale: float | None = None) -> str:
        """The best candidate made of a model, untaught, at any side or at this one."""
        forms = {name: one.form for name, one in self.candidates.items() if not one.form.lesson}
        names = [name for name, form in forms.items() if form.model == model and scale in (None, form.scale)]
        return max(names, key=self.value)

    @property
    def others(self) -> Int[np.ndarray, " row"]:
        """The rows that are fitted to and not in the sample."""
        return np.setdiff1d(self.fitted, self.sample.rows)

    @property
    def scale(self) -> float:
        """The side that all but the encoder as it is see, in sides of the encoder's own."""
        return next((one.form.scale for one in self.candidates.values() if one.form != ENCODER), ENCODER.scale)


def draw_fitted(train: Int[np.ndarray, " row"], most: int, seed: int) -> Int[np.ndarray, " drawn"]:
    """At most so many of the training rows, drawn at random, ascending."""
    if len(train) <= most:
        return train
    return np.sort(np.random.default_rng(seed).choice(train, most, replace=False))


def measure(trial: Trial, model: Model, form: Form, pixels: arrays.Reader, params: Params) -> None:
    """Adds a model at one strength and side to the trial, with each last layer that is tried."""
    settings = params.criterion
    blocks = max(min(max(params.blocks), most_blocks(model)), model.config.blocks)
    wide, count = shape(model, replace(form, blocks=blocks)).to(device.best()), len(trial.sample.rows)
    others = trial.others if params.layers or trial.questions else trial.fitted[:0]
    searched = embed(wide, pixels, others, *device.inference(wide.config.size), "others")
    if trial.questions:
        asked = embed(wide, pixels, trial.sample.rows, *device.inference(wide.config.size), "sample")
        embedded = criterion.Embedded(np.concatenate([asked, searched]), [])
    else:
        embedded = criterion.embed_views(wide, pixels, trial.sample, settings)
    fitted = [embedded.plain[:count][np.isin(trial.sample.rows, trial.fitted)], searched]
    whitenings = wide.widths, params.dims, params.layers, params.blocks
    forms = with_last_layers(form, model.reduction, embedded, np.concatenate(fitted), *whitenings)
    taught = with_lessons(replace(form, blocks=blocks), embedded, searched, trial.lessons if params.taught else [])
    for one, vectors in chain(forms, taught):
        hits = criterion.neighbours(vectors.plain[:count], trial.sample, settings.neighbours)
        if trial.questions:
            judged = Judged(*trial.questions.judge(vectors.plain))
        else:
            judged = Judged(*criterion.score(vectors, hits, trial.reference, trial.sample))
        trial.candidates[one.name] = Candidate(one, judged, hits)


def compare(
    models: dict[str, Path],
    plain: Path,
    pixels: arrays.Reader,
    collection: Collection,
    params: Params,
    cost: float,
    seed: int,
    targets: Mapping[str, Targets] = MappingProxyType({}),
    smoothing: SmoothingSettings = SETTINGS,
) -> Trial:
    """Measures every model at one strength, then the best of them at others, and with the mirror image.

    `plain` is the encoder as it is. `models`, the encoder among them, see the side that was chosen before. Where no
    task can tell, the encoder as it is becomes the one candidate, unmeasured. With `targets` of teachers, the last of
    them are the reference.
    """
    encoder, start = load(plain), load(models["encoder"])
    sample = criterion.draw_clear(collection, encoder.to(device.best()), pixels, params.criterion, seed)
    fitted = draw_fitted(collection.train, params.fitted, seed)
    if not len(sample.rows):
        return Trial(sample, fitted, {}, {ENCODER.name: Candidate(ENCODER, Judged(np.empty(0), np.empty(0)), {})})
    if targets:
        trial = with_questions(thinned(sample, collection), fitted, collection, targets, params, smoothing, seed)
    else:
        looks = criterion.embed_reference(start.to(device.best()), pixels, sample, params.reference)
        trial = Trial(sample, fitted, criterion.neighbours(looks, sample, params.criterion.neighbours))
    scale = start.config.side / encoder.config.side
    if scale != 1:
        measure(trial, encoder.cpu(), ENCODER, pixels, params.model_copy(update={"layers": [], "taught": []}))
    for name, folder in models.items():
        model = load(folder)
        strength = params.first_strength if model.adaptors else 1.0
        measure(trial, model, Form(name, strength, scale, cost=scale**2), pixels, params)

    trained = [name for name in models if name != "encoder"]
    trained.sort(key=lambda name: trial.value(trial.best_of(name)), reverse=True)
    is_mirrored = params.mirrored and 2 * scale**2 <= cost
    for name in trained[: params.finalists]:
        model = load(models[name])
        for strength in params.strengths:
            if strength != params.first_strength:
                measure(trial, model, Form(name, strength, scale, cost=scale**2), pixels, params)
        if is_mirrored:
            strength = trial.candidates[trial.best_of(name)].form.strength
            measure(trial, model, Form(name, strength, scale, True, cost=2 * scale**2), pixels, params)
    if is_mirrored:
        measure(trial, start.cpu(), Form("encoder", 1.0, scale, True, cost=2 * scale**2), pixels, params)
    return trial


def thinned(sample: criterion.Sample, collection: Collection) -> criterion.Sample:
    """A quarter of each task's training images at most, so that the others can be searched."""
    most = {task: int((collection.tasks[collection.train] == task).sum()) // 4 for task in sample.parts()}
    kept = np.sort(np.concatenate([places[: max(1, most[task])] for task, places in sample.parts().items()]))
    return criterion.Sample(sample.rows[kept], sample.tasks[kept])


def with_questions(
    sample: criterion.Sample,
    fitted: Int[np.ndarray, " row"],
    collection: Collection,
    targets: Mapping[str, Targets],
    params: Params,
    smoothing: SmoothingSettings,
    seed: int,
) -> Trial:
    """A trial that is judged by what teachers answer."""
    trial, reference = Trial(sample, fitted, {}), [*targets.values()][-1]
    rows = np.concatenate([sample.rows, trial.others])
    places = np.searchsorted(collection.train, rows)  # targets are of training images
    questions = ask(reference[places], collection.tasks[rows], len(sample.rows), smoothing, seed)
    searched = {name: given[places[len(sample.rows) :]] for name, given in targets.items()}
    taught = lessons(searched, collection.tasks[trial.others], questions.smoothings, params.taught)
    return replace(trial, questions=replace(questions, searched=params.searched), lessons=list(taught))


def choose(trial: Trial, uncertain: list[str], params: Params) -> tuple[Decision, list[str]]:
    """The decision and its reasons, in sentences; `uncertain` are the tasks that cannot tell."""
    if len(trial.sample.rows):
        judged = {name: one.judged for name, one in trial.candidates.items()}
        decision = decide(judged, ENCODER.name, trial.sample, params.errors, params.guard)
        why = reasons(trial, decision, params)
    else:
        decision = Decision(ENCODER.name, ENCODER.name, {ENCODER.name: []})
        why = ["No task can tell. This is the encoder as it is, the safest candidate."]
    if uncertain:
        why.append(
            f"Left out, for fewer than {params.criterion.fewest} training images or images all alike cannot tell: "
            f"{', '.join(uncertain)}."
        )
    return decision, why


def reasons(trial: Trial, decision: Decision, params: Params) -> list[str]:
    """Why this one, in sentences."""
    errors, group = params.errors, params.criterion.groups.removesuffix("s")
    fallen = sum(bool(tasks) for tasks in decision.falls.values())
    lines = [
        f"{len(trial.candidates)} candidates were compared on {len(trial.sample.rows)} training images of "
        f"{len(trial.sample.parts())} {group}(s); {fallen} fall below the encoder on a {group}.",
        f"{decision.best} has the highest criterion ({100 * trial.value(decision.best):.1f}).",
    ]
    if decision.best != decision.chosen:
        lines.append(
            f"{decision.chosen} ({100 * trial.value(decision.chosen):.1f}) is as good within {errors:g} standard "
            "errors and keeps more of the reference's neighbours."
        )
    if trial.scale != 1:
        lines.append(f"All but the encoder as it is see images at {trial.scale:g} times its side, chosen before.")
    return [*lines, f"The encoder as it is has {100 * trial.value(ENCODER.name):.1f}."]


def build(
    folder: Path,
    form: Form,
    pixels: arrays.Reader,
    collection: Collection,
    targets: Mapping[str, Targets] = MappingProxyType({}),
    smoothings: Mapping[str, Smoothing] = MappingProxyType({}),
) -> Model:
    """The model of a form; its last layer is fitted anew, to all training images."""
    model = load(folder)
    shaped = shape(model, form)
    rows = collection.train if form.layer in ("half", "full", "taught") else collection.train[:0]
    embeddings = embed(shaped.to(device.best()), pixels, rows, *device.inference(shaped.config.size), "last layer")
    taught = {}
    if form.lesson:
        own = {form.lesson.by: targets[form.lesson.by]}
        taught = dict(lessons(own, collection.tasks[rows], smoothings, [form.lesson.smoothed]))
    add_last_layer(shaped.cpu(), model.reduction, form, embeddings, taught)
    return shaped


def candidate_rows(trial: Trial, decision: Decision) -> list[list]:
    """`criterion.csv`: a line per candidate, the best first."""
    parts = trial.sample.parts()
    header = ["name", "model", "strength", "scale", "mirrored", "blocks", "layer", "dim", "cost"]
    rows = [[*header, "criterion", "agreement", "falls", "chosen", *parts]]
    for name in sorted(trial.candidates, key=trial.value, reverse=True):
        form, judged = trial.candidates[name].form, trial.candidates[name].judged
        row = [name, form.model, form.strength, form.scale, int(form.mirrored), form.blocks, form.layer, form.dim or ""]
        agreement = criterion.mean_over_tasks(judged.agreement, trial.sample)
        row += [f"{value:.6g}" for value in (form.cost, trial.value(name), agreement)]
        row += [" ".join(decision.falls[name]), int(name == decision.chosen)]
        rows.append(row + [f"{judged.score[places].mean():.6g}" for places in parts.values()])
    return rows


def neighbour_table(trial: Trial, chosen: str, collection: Collection) -> pa.Table:
    """`neighbours.parquet`: the nearest of each sampled image, best first, as rows within its task.

    A cluster may hold images of other tasks: these are left out.
    """
    rows, tasks = collection.rows[trial.sample.rows], collection.tasks[trial.sample.rows]
    records = {"task": [], "row": [], "encoder": [], "chosen": []}
    for group, places in trial.sample.parts().items():
        records["task"] += tasks[places].tolist()
        records["row"] += rows[places].tolist()
        for key, name in (("encoder", ENCODER.name), ("chosen", chosen)):
            nearest = places[trial.candidates[name].neighbours[group]]
            pairs = zip(places, nearest, strict=True)
            records[key] += [rows[own[tasks[own] == tasks[place]]].tolist() for place, own in pairs]
    lists = pa.list_(pa.int64())
    fields = [("task", pa.string()), ("row", pa.int64()), ("encoder", lists), ("chosen", lists)]
    return pa.table(records, pa.schema(fields))


def summary(trial: Trial, chosen: str, why: list[str], uncertain: list[str]) -> dict:
    """`choice.json`; criteria with the bounds of their 95 % interval over images."""
    parts = trial.sample.parts()
    compared = {}
    for column, of in [("mean", [*parts.values()]), *((task, [places]) for task, places in parts.items())]:
        before, after = (trial.candidates[name].judged.score for name in (ENCODER.name, chosen))
        rows = {"encoder": before, "chosen": after, "difference": after - before}
        compared[column] = {key: interval([values[places] for places in of]) for key, values in rows.items()}
    return {
        "name": chosen,
        "form": asdict(trial.candidates[chosen].form),
        "why": why,
        "images": len(trial.sample.rows),
        "criterion": compared if parts else {},
        "uncertain": uncertain,
    }


def main(
    images: Path,
    encoder: Path,
    resolution: Path,
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

    targets = read_targets(teacher, list(lists.teachers))
    trial = compare(models, encoder, pixels, collection, params, cost, seed, targets, smoothing)
    trained = list(dict.fromkeys(collection.tasks[collection.train]))
    groups = trained
    if params.criterion.groups == "clusters":
        groups = [f"cluster{i}" for i in range(params.criterion.clusters)]
    uncertain = [group for group in groups if group not in trial.sample.parts()]
    decision, why = choose(trial, uncertain, params)

    smoothings = trial.questions.smoothings if trial.questions else {}
    forms = [trial.candidates[name].form for name in (decision.chosen, trial.best_of("encoder", trial.scale))]
    model, untrained = (
        build(encoder if form == ENCODER else models[form.model], form, pixels, collection, targets, smoothings)
        for form in forms
    )
    content = summary(trial, decision.chosen, why, uncertain)
    content |= {"learnt": {"tasks": trained, "images": len(collection.train)}}
    with outputs.folder(output) as folder:
        save(model, folder)
        (folder / "untrained").mkdir()
        save(untrained, folder / "untrained")
        (folder / "README.md").write_text(
            card.text(model.config, content, trained, len(collection.train)), encoding="utf-8"
        )
        (folder / "choice.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        write_csv(folder / "criterion.csv", candidate_rows(trial, decision))
        pq.write_table(neighbour_table(trial, decision.chosen, collection), folder / "neighbours.parquet")
    return f"{decision.chosen}, of {len(trial.candidates)} candidates"


if __name__ == "__main__":
    command.run(main, Params, cost="resolution.cost", smoothing="gallery.smoothing")
