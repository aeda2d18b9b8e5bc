"""The search for the model to hand out: each model with each last layer is evaluated on sampled images; one is taken.

That is the best by the criterion, or a gentler one that is as good: a difference counts by its standard error over the
sampled images, as images of a task are drawn, and tasks are given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float, Float32, Int
from pydantic import Field
from torch import nn

from polygrain.compute import device
from polygrain.config import schema
from polygrain.encoder.model import Model, blocks_for, load
from polygrain.encoder.stored import Stored, embed
from polygrain.fisher.granularities import Granularities
from polygrain.retrieval.whitening import Affine
from polygrain.selection import criterion
from polygrain.selection.candidates.forms import Form, with_last_layers
from polygrain.selection.criterion import (
    CriterionSettings,
    Embedded,
    Reference,
    Sample,
    mean_over_tasks,
    noise,
    standard_error,
)
from polygrain.selection.seen import Seen
from polygrain.store import arrays
from polygrain.store.image_table import ImageTable

ENCODER = Form("encoder")
Neighbours = dict[str, Int[np.ndarray, "image neighbour"]]


class Settings(schema.Section):
    criterion: CriterionSettings
    reference: Reference = Field(description="with its nearest images a candidate's are compared")
    layer: Literal["clusters", "none"] = Field(description="the last layer: in closed form from clusters, or none")
    blocks: int = Field(ge=1, le=1000, description="outputs side by side in front of the layer: of the last blocks")
    dim: schema.Width | None = Field(
        description="numbers of an embedding, the last of them zeros where it has fewer; null: 256 with a layer "
        "from clusters, or as many as the layer's input has, if that is fewer"
    )
    errors: float = Field(ge=0, le=100, description="standard errors within which candidates count as equal")
    guard: float = Field(ge=0, le=100, description="standard errors by which no task may fall below the encoder")
    alike: dict[schema.Name, Annotated[int, Field(ge=2, le=1_000_000)]] = Field(
        description="for a task, about how many images show the same thing; leave it out where you do not know"
    )


@dataclass(frozen=True)
class Scores:
    """One candidate's criterion and agreement, an entry for each image of the sample."""

    score: Float[np.ndarray, " image"]
    agreement: Float[np.ndarray, " image"]


@dataclass(frozen=True)
class Evaluator:
    """Evaluates forms of models on the sample that was `seen`.

    `granularities`: clusters that make last layers. `features`: stored outputs.
    """

    settings: Settings
    collection: ImageTable
    seen: Seen
    granularities: Granularities
    features: Stored | None = None

    @property
    def sample(self) -> Sample:
        return self.seen.sample

    @cached_property
    def reference(self) -> Neighbours:
        """The neighbours of each sampled image under the careful look."""
        if self.seen.looks is None:
            raise ValueError("`resolution` wrote no careful looks: run `dvc repro resolution`")
        looks = criterion.half_whitened(self.seen.looks, self.settings.reference.dim)
        return criterion.neighbours(looks, self.sample, self.settings.criterion.neighbours)

    def embed(
        self, model: Model, pixels: arrays.Reader, layers: bool
    ) -> tuple[Embedded, Float32[np.ndarray, "row dim"]]:
        """A model's outputs for the sample and for the images to which its last layer is fitted: without `layers` and
        a length, none."""
        trains = self.settings.dim or (self.granularities.labels and layers)
        rows = self.collection.train[self.granularities.rows if trains else slice(0)]
        train = embed(model, self.features, pixels, rows, "training images")
        return self.seen.embed(model, pixels, self.settings.criterion), train

    def evaluate(self, embedded: Embedded) -> tuple[Scores, Neighbours]:
        """Criterion and agreement of each sampled image, and its nearest others in the sample, by task."""
        neighbours = criterion.neighbours(embedded.plain, self.sample, self.settings.criterion.neighbours)
        return Scores(*criterion.score(embedded, neighbours, self.reference, self.sample)), neighbours


@dataclass(frozen=True)
class Candidate:
    """A form with its criterion, each sampled image's nearest others under it, by task, and its layer from clusters."""

    form: Form
    scores: Scores
    neighbours: Neighbours
    layer: Affine | None = None


@dataclass(frozen=True)
class Search:
    """The sample on which candidates are compared, and the candidates by name.

    `uncertain` are the tasks that cannot tell. All but the encoder as it is see the side `scale`, in sides of the
    encoder's own.
    """

    sample: Sample
    uncertain: list[str]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    scale: float = 1.0

    def value(self, name: str) -> float:
        """The criterion of a candidate."""
        return mean_over_tasks(self.candidates[name].scores.score, self.sample)

    def best_of(self, model: str) -> Candidate:
        """The best form of a model at the side that all see."""
        forms = {name: one.form for name, one in self.candidates.items()}
        names = [name for name, form in forms.items() if form.model == model and form.scale == self.scale]
        return self.candidates[max(names, key=self.value)]

    def add(self, measured: Iterator[Candidate]) -> None:
        self.candidates.update((one.form.name, one) for one in measured)


def measure(
    evaluator: Evaluator, model: Model, form: Form, pixels: arrays.Reader, layers: bool = True
) -> Iterator[Candidate]:
    """A model with each last layer that is tried; without `layers` as it is."""
    settings = evaluator.settings
    form = replace(form, blocks=blocks_for(model, settings.blocks) if layers else 1)
    blocks = model.without_reduction(form.blocks).to(device.best())
    sample, train = evaluator.embed(blocks, pixels, layers)
    learnt = model.reduction if layers else nn.Identity()

    def fit() -> Affine | None:
        return evaluator.granularities.fit(train, sample.stacked()) if layers else None

    for one, embedded, layer in with_last_layers(form, learnt, sample, blocks.widths[0], fit, train, settings.dim):
        yield Candidate(one, *evaluator.evaluate(embedded), layer)


def compare(models: dict[str, Path], plain: Path, pixels: arrays.Reader, evaluator: Evaluator) -> Search:
    """Measures every model with each last layer.

    `plain` is the encoder as it is. `models`, the encoder among them, see the side that was chosen before. Where no
    task can tell, the encoder as it is becomes the one candidate, unmeasured.
    """
    sample, collection = evaluator.sample, evaluator.collection
    tasks = dict.fromkeys(collection.tasks[collection.train])
    uncertain = [task for task in tasks if task not in sample.parts()]
    if not len(sample.rows):
        nothing = Candidate(ENCODER, Scores(np.empty(0), np.empty(0)), {})
        return Search(sample, uncertain, {ENCODER.name: nothing})
    encoder, start = load(plain), load(models["encoder"])
    for one in (encoder, start):
        evaluator.seen.require(one, blocks_for(one, evaluator.settings.blocks))
    scale = start.config.side / encoder.config.side
    search = Search(sample, uncertain, scale=scale)
    if scale != 1:
        search.add(measure(evaluator, encoder, ENCODER, pixels, layers=False))
    for name, folder in models.items():
        search.add(measure(evaluator, load(folder), Form(name, scale), pixels))
    return search


def falls(measured: Scores, encoder: Scores, sample: Sample, guard: float) -> list[str]:
    """The tasks on which a candidate is below the encoder by more than `guard` standard errors."""
    differences = {task: measured.score[own] - encoder.score[own] for task, own in sample.parts().items()}
    return [task for task, values in differences.items() if values.mean() < -guard * standard_error(values)]


@dataclass(frozen=True)
class Decision:
    """The names of the candidate to take and of the best; `falls` has the tasks on which each is below the encoder."""

    chosen: str
    best: str
    falls: dict[str, list[str]]


def decide(candidates: Mapping[str, Scores], encoder: str, sample: Sample, errors: float, guard: float) -> Decision:
    """Takes one of the candidates; `encoder` names the plain encoder among them.

    Candidates that fall below it on a task are out. Of the rest, the best by the criterion sets the mark. Of those
    within `errors` standard errors of it, the one that agrees most with the reference is taken.
    """
    below = {name: falls(measured, candidates[encoder], sample, guard) for name, measured in candidates.items()}
    allowed = {name: measured for name, measured in candidates.items() if not below[name]}
    best = max(allowed, key=lambda name: mean_over_tasks(allowed[name].score, sample))
    near = []
    for name, measured in allowed.items():
        difference = allowed[best].score - measured.score
        if name == best or mean_over_tasks(difference, sample) <= errors * noise(difference, sample):
            near.append(name)
    return Decision(max(near, key=lambda name: mean_over_tasks(allowed[name].agreement, sample)), best, below)
