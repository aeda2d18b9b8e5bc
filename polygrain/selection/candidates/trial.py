"""The trial of all candidates on a sample of training images: every model and last layer, measured.

The encoder is a candidate, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from polygrain.compute import device
from polygrain.encoder.model import Model, blocks_for, load
from polygrain.selection.candidates.decision import Judged
from polygrain.selection.candidates.forms import Form, with_last_layers
from polygrain.selection.candidates.judges import Judge, Neighbours
from polygrain.selection.criterion import Sample, mean_over_tasks
from polygrain.store import arrays

ENCODER = Form("encoder")


@dataclass(frozen=True)
class Candidate:
    """A form with its criterion, and each sampled image's nearest others under it, by task."""

    form: Form
    judged: Judged
    neighbours: Neighbours


@dataclass(frozen=True)
class Trial:
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
        return mean_over_tasks(self.candidates[name].judged.score, self.sample)

    def best_of(self, model: str) -> Form:
        """The best form of a model at the side that all see."""
        forms = {name: one.form for name, one in self.candidates.items()}
        names = [name for name, form in forms.items() if form.model == model and form.scale == self.scale]
        return forms[max(names, key=self.value)]

    def add(self, measured: Iterator[Candidate]) -> None:
        self.candidates.update((one.form.name, one) for one in measured)


def measure(judge: Judge, model: Model, form: Form, pixels: arrays.Reader, layers: bool = True) -> Iterator[Candidate]:
    """A model with each last layer that is tried; without `layers` as it is."""
    settings = judge.settings
    form = replace(form, blocks=blocks_for(model, settings.blocks) if layers else 1)
    outputs = judge.embed(model.without_reduction(form.blocks).to(device.best()), pixels, layers)
    learnt, fit = (model.reduction, partial(judge.fit, outputs)) if layers else (nn.Identity(), lambda: None)
    given = outputs.sample, outputs.width, fit, outputs.train, settings.dim
    for one, embedded in with_last_layers(form, learnt, *given):
        yield Candidate(one, *judge.judge(embedded))


def compare(models: dict[str, Path], plain: Path, pixels: arrays.Reader, judge: Judge) -> Trial:
    """Measures every model with each last layer.

    `plain` is the encoder as it is. `models`, the encoder among them, see the side that was chosen before. Where no
    task can tell, the encoder as it is becomes the one candidate, unmeasured.
    """
    settings, sample, tasks = judge.settings, judge.sample, judge.collection.tasks[judge.collection.train]
    uncertain = [task for task in dict.fromkeys(tasks) if task not in sample.parts()]
    if not len(sample.rows):
        nothing = Candidate(ENCODER, Judged(np.empty(0), np.empty(0)), {})
        return Trial(sample, uncertain, {ENCODER.name: nothing})
    encoder, start = load(plain), load(models["encoder"])
    for one in (encoder, start):
        judge.seen.require(one, blocks_for(one, settings.blocks))
    scale = start.config.side / encoder.config.side
    trial = Trial(sample, uncertain, scale=scale)
    if scale != 1:
        trial.add(measure(judge, encoder, ENCODER, pixels, layers=False))
    for name, folder in models.items():
        trial.add(measure(judge, load(folder), Form(name, scale), pixels))
    return trial
