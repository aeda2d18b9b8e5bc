"""Two judges of candidates: views of the sampled images, or teachers whose answers a candidate should give.

A judge embeds its images by one model and then judges every form of these embeddings, for which no network runs: stored
embeddings will do.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from jaxtyping import Float32, Int
from pydantic import Field

from polygrain.config import schema
from polygrain.encoder.model import Model
from polygrain.encoder.stored import Stored, embed
from polygrain.retrieval.smoothing import Smoothing
from polygrain.retrieval.smoothing_choice import SmoothingSettings
from polygrain.retrieval.whitening import Kind
from polygrain.selection import criterion
from polygrain.selection.candidates.decision import Judged
from polygrain.selection.criterion import CriterionSettings, Embedded, Reference, Sample
from polygrain.selection.grain import GrainSettings
from polygrain.selection.questions import Questions, Searched, ask
from polygrain.selection.seen import Seen
from polygrain.selection.teaching import Lesson, Targets, lessons
from polygrain.store import arrays
from polygrain.store.collection import Collection

Neighbours = dict[str, Int[np.ndarray, "image neighbour"]]
Vectors = Float32[np.ndarray, "row dim"]


class Settings(schema.Section):
    criterion: CriterionSettings
    reference: Reference = Field(description="whose neighbours should be kept")
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
    layers: list[Kind] = Field(max_length=4, description="whitenings tried behind each model")
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
    grain: GrainSettings = Field(description="the last layer of what is handed out, and the axes that each task uses")
    alike: dict[schema.Name, Annotated[int, Field(ge=2, le=1_000_000)]] = Field(
        description="task: about how many images show the same thing; left out where nobody knows"
    )


@dataclass(frozen=True)
class Judging:
    """By what candidates are judged: the settings, and from other stages the most passes, the smoothing of collections,
    the teachers' `targets` for all training images, what was `seen` of the sample, and the stored `features`."""

    settings: Settings
    cost: float
    smoothing: SmoothingSettings
    targets: Mapping[str, Targets]
    seed: int
    seen: Seen
    features: Stored | None = None


@dataclass(frozen=True)
class Embeddings:
    """One model's outputs of several blocks, of these `widths`, for what is judged, for whitenings, and for lessons."""

    judged: Embedded
    fitted: Float32[np.ndarray, "fitted dim"]
    taught: Float32[np.ndarray, "taught dim"]
    widths: Sequence[int]


@dataclass(frozen=True)
class Judge(ABC):
    """Knows the sampled images, and the training images to which whitenings are fitted.

    Last layers learn `lessons` from the `others`; each task of a collection is smoothed by its own of `smoothings`.
    """

    sample: Sample
    fitted: Int[np.ndarray, " row"]
    settings: CriterionSettings
    lessons: Sequence[tuple[Lesson, Targets]] = field(default=(), kw_only=True)
    smoothings: Mapping[str, Smoothing] = field(default_factory=dict, kw_only=True)
    features: Stored | None = field(default=None, kw_only=True)

    @property
    def others(self) -> Int[np.ndarray, " row"]:
        """The rows that are fitted to and not in the sample."""
        return np.setdiff1d(self.fitted, self.sample.rows)

    def embed(self, model: Model, pixels: arrays.Reader) -> Embeddings:
        """By one model: what is judged, and what last layers are fitted to."""
        others = embed(model, self.features, pixels, self.others, "others")
        judged = self.embed_judged(model, pixels, others)
        in_sample = judged.plain[: len(self.sample.rows)][np.isin(self.sample.rows, self.fitted)]
        return Embeddings(judged, np.concatenate([in_sample, others]), others, model.widths)

    def judge(self, embedded: Embedded) -> tuple[Judged, Neighbours]:
        """Criterion and agreement of each sampled image, and its nearest others in the sample, by task."""
        plain = embedded.plain[: len(self.sample.rows)]
        neighbours = criterion.neighbours(plain, self.sample, self.settings.neighbours)
        return self.score(embedded, neighbours), neighbours

    @abstractmethod
    def embed_judged(self, model: Model, pixels: arrays.Reader, others: Vectors) -> Embedded: ...

    @abstractmethod
    def score(self, embedded: Embedded, neighbours: Neighbours) -> Judged: ...


@dataclass(frozen=True)
class Views(Judge):
    """Judges whether two views of an image find each other, and whether it keeps its neighbours of the reference."""

    reference: Neighbours
    seen: Mapping[int, Stored] = field(default_factory=dict)

    def embed_judged(self, model: Model, pixels: arrays.Reader, others: Vectors) -> Embedded:
        stored = self.seen.get(model.config.side)
        if stored is not None and stored.holds(model):
            return Embedded.of(stored.embed(model, np.arange(len(self.sample.rows))))
        return criterion.embed_views(model, pixels, self.sample, self.settings)

    def score(self, embedded: Embedded, neighbours: Neighbours) -> Judged:
        return Judged(*criterion.score(embedded, neighbours, self.reference, self.sample))


@dataclass(frozen=True)
class Teachers(Judge):
    """Judges whether the sampled images find among the others what teachers find."""

    questions: Questions

    def embed_judged(self, model: Model, pixels: arrays.Reader, others: Vectors) -> Embedded:
        asked = embed(model, self.features, pixels, self.sample.rows, "sample")
        return Embedded(np.concatenate([asked, others]), [])

    def score(self, embedded: Embedded, neighbours: Neighbours) -> Judged:
        return Judged(*self.questions.judge(embedded.plain))


def appoint(judging: Judging, collection: Collection) -> Judge:
    """Teachers, of whose targets the last are the reference; without any, views, and the looks that were seen."""
    settings, fitted, seen = judging.settings, collection.train, judging.seen
    if len(fitted) > settings.fitted:
        fitted = np.sort(np.random.default_rng(judging.seed).choice(fitted, settings.fitted, replace=False))
    if judging.targets:
        return teachers(judging, thinned(seen.sample, collection), fitted, collection)
    if seen.looks is None:
        raise ValueError("`resolution` saw the images with teachers, and none is left: run `dvc repro resolution`")
    looks = criterion.half_whitened(seen.looks, settings.reference.dim)
    reference = criterion.neighbours(looks, seen.sample, settings.criterion.neighbours)
    rows = fitted if settings.layers else fitted[:0]
    return Views(seen.sample, rows, settings.criterion, reference, seen.views, features=judging.features)


def teachers(judging: Judging, sample: Sample, fitted: Int[np.ndarray, " row"], collection: Collection) -> Teachers:
    """The sample asks the other fitted images."""
    others, asked = np.setdiff1d(fitted, sample.rows), len(sample.rows)
    rows = np.concatenate([sample.rows, others])
    places = np.searchsorted(collection.train, rows)  # targets are of training images
    given, settings = {name: of[places] for name, of in judging.targets.items()}, judging.settings
    reference = [*given.values()][-1]
    questions = ask(
        reference, collection.tasks[rows], asked, judging.smoothing, judging.seed, searched=settings.searched
    )
    known = {name: of[asked:] for name, of in given.items()}
    taught = [*lessons(known, collection.tasks[others], questions.smoothings, settings.taught)]
    asking = Teachers(sample, fitted, settings.criterion, questions)
    return replace(asking, lessons=taught, smoothings=questions.smoothings, features=judging.features)


def thinned(sample: Sample, collection: Collection) -> Sample:
    """A quarter of each task's training images at most, so that the others can be searched; two, to be neighbours."""
    most = {task: int((collection.tasks[collection.train] == task).sum()) // 4 for task in sample.parts()}
    kept = np.sort(np.concatenate([places[: max(2, most[task])] for task, places in sample.parts().items()]))
    return Sample(sample.rows[kept], sample.tasks[kept])
