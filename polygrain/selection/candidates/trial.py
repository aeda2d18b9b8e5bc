"""The trial of all candidates on a sample of training images: every model, strength, last layer and lesson, measured.

The encoder is a candidate, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field

from polygrain.compute import device
from polygrain.config import schema
from polygrain.encoder.extract import embed
from polygrain.encoder.model import Model, load, most_blocks
from polygrain.selection import criterion
from polygrain.selection.candidates.decision import Judged
from polygrain.selection.candidates.forms import Form, shape, with_last_layers, with_lessons
from polygrain.selection.questions import Questions, Searched, ask
from polygrain.selection.smoothing import SETTINGS, SmoothingSettings
from polygrain.selection.teaching import Lesson, Targets, lessons
from polygrain.store import arrays
from polygrain.store.collection import Collection

ENCODER = Form("encoder")


class Settings(schema.Section):
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


def measure(trial: Trial, model: Model, form: Form, pixels: arrays.Reader, settings: Settings) -> None:
    """Adds a model at one strength and side to the trial, with each last layer that is tried."""
    blocks = max(min(max(settings.blocks), most_blocks(model)), model.config.blocks)
    wide, count = shape(model, replace(form, blocks=blocks)).to(device.best()), len(trial.sample.rows)
    others = trial.others if settings.layers or trial.questions else trial.fitted[:0]
    searched = embed(wide, pixels, others, *device.inference(wide.config.size), "others")
    if trial.questions:
        asked = embed(wide, pixels, trial.sample.rows, *device.inference(wide.config.size), "sample")
        embedded = criterion.Embedded(np.concatenate([asked, searched]), [])
    else:
        embedded = criterion.embed_views(wide, pixels, trial.sample, settings.criterion)
    fitted = [embedded.plain[:count][np.isin(trial.sample.rows, trial.fitted)], searched]
    whitenings = wide.widths, settings.dims, settings.layers, settings.blocks
    forms = with_last_layers(form, model.reduction, embedded, np.concatenate(fitted), *whitenings)
    taught = with_lessons(replace(form, blocks=blocks), embedded, searched, trial.lessons if settings.taught else [])
    for one, vectors in chain(forms, taught):
        hits = criterion.neighbours(vectors.plain[:count], trial.sample, settings.criterion.neighbours)
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
    settings: Settings,
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
    sample = criterion.draw_clear(collection, encoder.to(device.best()), pixels, settings.criterion, seed)
    fitted = draw_fitted(collection.train, settings.fitted, seed)
    if not len(sample.rows):
        return Trial(sample, fitted, {}, {ENCODER.name: Candidate(ENCODER, Judged(np.empty(0), np.empty(0)), {})})
    if targets:
        trial = with_questions(thinned(sample, collection), fitted, collection, targets, settings, smoothing, seed)
    else:
        looks = criterion.embed_reference(start.to(device.best()), pixels, sample, settings.reference)
        trial = Trial(sample, fitted, criterion.neighbours(looks, sample, settings.criterion.neighbours))
    scale = start.config.side / encoder.config.side
    if scale != 1:
        measure(trial, encoder.cpu(), ENCODER, pixels, settings.model_copy(update={"layers": [], "taught": []}))
    for name, folder in models.items():
        model = load(folder)
        strength = settings.first_strength if model.adaptors else 1.0
        measure(trial, model, Form(name, strength, scale, cost=scale**2), pixels, settings)

    trained = [name for name in models if name != "encoder"]
    trained.sort(key=lambda name: trial.value(trial.best_of(name)), reverse=True)
    is_mirrored = settings.mirrored and 2 * scale**2 <= cost
    for name in trained[: settings.finalists]:
        model = load(models[name])
        for strength in settings.strengths:
            if strength != settings.first_strength:
                measure(trial, model, Form(name, strength, scale, cost=scale**2), pixels, settings)
        if is_mirrored:
            strength = trial.candidates[trial.best_of(name)].form.strength
            measure(trial, model, Form(name, strength, scale, True, cost=2 * scale**2), pixels, settings)
    if is_mirrored:
        measure(trial, start.cpu(), Form("encoder", 1.0, scale, True, cost=2 * scale**2), pixels, settings)
    return trial


def thinned(sample: criterion.Sample, collection: Collection) -> criterion.Sample:
    """A quarter of each task's training images at most, so that the others can be searched; two, to be neighbours."""
    most = {task: int((collection.tasks[collection.train] == task).sum()) // 4 for task in sample.parts()}
    kept = np.sort(np.concatenate([places[: max(2, most[task])] for task, places in sample.parts().items()]))
    return criterion.Sample(sample.rows[kept], sample.tasks[kept])


def with_questions(
    sample: criterion.Sample,
    fitted: Int[np.ndarray, " row"],
    collection: Collection,
    targets: Mapping[str, Targets],
    settings: Settings,
    smoothing: SmoothingSettings,
    seed: int,
) -> Trial:
    """A trial that is judged by what teachers answer."""
    trial, reference = Trial(sample, fitted, {}), [*targets.values()][-1]
    rows = np.concatenate([sample.rows, trial.others])
    places = np.searchsorted(collection.train, rows)  # targets are of training images
    questions = ask(reference[places], collection.tasks[rows], len(sample.rows), smoothing, seed)
    searched = {name: given[places[len(sample.rows) :]] for name, given in targets.items()}
    taught = lessons(searched, collection.tasks[trial.others], questions.smoothings, settings.taught)
    return replace(trial, questions=replace(questions, searched=settings.searched), lessons=list(taught))
