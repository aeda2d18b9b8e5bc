"""ONE model, chosen without labels: which adaptors, how strong, and what lies behind.

Reads   images, encoder, resolution, every adaptor set, fusion and distillation
Writes  weights.safetensors, config.json   the chosen model: strength folded in, whitening as its last layer
        README.md            its card
        criterion.csv        every candidate: its criterion on each task, its agreement and cost, where it falls
        choice.json          what was chosen and why; criteria of encoder and chosen model with intervals; its images
        neighbours.parquet   sampled images: their nearest under the encoder and under the chosen model
        untrained/           the encoder in its best form by the same criterion: what adaptation has to beat

The encoder is a candidate: where nothing is better, it is handed out. Where no task can tell, it is, too.

Several processes share the images to which the whitening is fitted, and each compares on the whole sample:
POLYGRAIN_PROCESSES, or POLYGRAIN_TORCHRUN on several machines.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int
from pydantic import Field
from torch import nn

from polygrain.compute import device, processes
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.extract import embed, embed_shares
from polygrain.encoder.model import Model, load, most_blocks, save
from polygrain.runner import command, outputs
from polygrain.selection import criterion
from polygrain.selection.candidates import card
from polygrain.selection.candidates.decision import Decision, Judged, decide, interval
from polygrain.selection.candidates.forms import Form, behind, finish, shape
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
class Trial:
    """All that was measured of one sample: the candidates by their form's name.

    `fitted` are the training rows to which whitenings are fitted.
    """

    sample: criterion.Sample
    reference: dict[str, np.ndarray]
    fitted: Int[np.ndarray, " row"] = field(default_factory=lambda: np.empty(0, int))
    forms: dict[str, Form] = field(default_factory=dict)
    measured: dict[str, Judged] = field(default_factory=dict)
    nearest: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    def value(self, name: str) -> float:
        return criterion.mean_over_tasks(self.measured[name].score, self.sample)

    @property
    def scale(self) -> float:
        """The side that all but the encoder as it is see, in sides of the encoder's own."""
        return next((form.scale for form in self.forms.values() if form != ENCODER), ENCODER.scale)

    def best_of(self, model: str) -> float:
        return max(self.value(name) for name, form in self.forms.items() if form.model == model)


def measure(trial: Trial, model: Model, form: Form, pixels: arrays.Reader, params: Params) -> None:
    """Adds a model in one strength and input, with all that may lie behind it, to the trial."""
    blocks = max(min(max(params.blocks), most_blocks(model)), model.config.blocks)
    wide = shape(model, replace(form, blocks=blocks))
    seen = criterion.see(wide.to(device.best()), pixels, trial.sample, params.criterion)
    others = np.setdiff1d(trial.fitted, trial.sample.rows) if params.layers else trial.fitted[:0]
    batch, precision = params.criterion.batch, params.criterion.precision
    known = np.concatenate(
        [
            seen.plain[np.isin(trial.sample.rows, trial.fitted)],
            embed(wide, pixels, others, batch, precision, "whitening"),
        ]
    )
    forms = behind(form, model.reduction, seen, known, wide.widths, params.dims, params.layers, params.blocks)
    for candidate, embeddings in forms:
        found = criterion.neighbours(embeddings.plain, trial.sample, params.criterion.neighbours)
        judged = Judged(*criterion.score(embeddings, found, trial.reference, trial.sample))
        trial.forms[candidate.name], trial.measured[candidate.name] = candidate, judged
        trial.nearest[candidate.name] = found


def compare(
    encoder: Model,
    models: dict[str, Path],
    pixels: arrays.Reader,
    sample: criterion.Sample,
    fitted: Int[np.ndarray, " row"],
    params: Params,
    cost: float,
) -> Trial:
    """Measures every model in one strength, then the best of them in others and with the mirror image.

    `encoder` is the plain one; `models`, with the encoder among them, all see the side that was chosen before.
    Whitenings are fitted to the images `fitted`.
    """
    start = load(models["encoder"]).to(device.best())
    looks = criterion.refer(start, pixels, sample, params.reference, params.criterion)
    trial = Trial(sample, criterion.neighbours(looks, sample, params.criterion.neighbours), fitted)
    scale = start.config.side / encoder.config.side
    at_side = Form("encoder", scale=scale, cost=scale**2)
    with_mirror = [replace(at_side, mirrored=True, cost=2 * at_side.cost)] * params.mirrored
    with_mirror = [form for form in with_mirror if form.cost <= cost]
    if scale != 1:
        measure(trial, encoder, ENCODER, pixels, params.model_copy(update={"layers": []}))
    for name, folder in models.items():
        model = load(folder)
        strength = params.first_strength if model.adaptors else 1.0
        measure(trial, model, replace(at_side, model=name, strength=strength), pixels, params)
    others = sorted((name for name in models if name != "encoder"), key=trial.best_of, reverse=True)
    for name in others[: params.finalists]:
        model = load(models[name])
        for strength in params.strengths:
            if strength != params.first_strength:
                measure(trial, model, replace(at_side, model=name, strength=strength), pixels, params)
        best = max((n for n, form in trial.forms.items() if form.model == name), key=trial.value)
        for form in with_mirror:
            measure(trial, model, replace(form, model=name, strength=trial.forms[best].strength), pixels, params)
    for form in with_mirror:
        measure(trial, start.cpu(), form, pixels, params)
    return trial


def build(folder: Path, form: Form, pixels: arrays.Reader, collection: Collection, params: Params) -> Model:
    """The chosen form as a model; a whitening is fitted anew, to all training images."""
    model = load(folder)
    own: nn.Module = model.reduction
    shaped = shape(model, form)
    if form.layer in ("half", "full"):
        shaped.to(device.best())
        batch, precision = params.criterion.batch, params.criterion.precision
        known = embed_shares(shaped, pixels, collection.train, batch, precision, "whitening")
    else:
        known = np.empty((0, shaped.dim), np.float32)
    shaped.cpu()
    finish(shaped, own, form, known)
    return shaped


def agreed(forms: list[Form]) -> list[Form]:
    """The first process's forms, in all of them: each has compared for itself, and they build together."""
    said = processes.from_first(json.dumps([asdict(form) for form in forms]).encode())
    return [Form(**values) for values in json.loads(said)]


def untold(sample: criterion.Sample) -> Trial:
    """The trial where no task can tell: the encoder is its one candidate, and nothing is measured."""
    nothing = np.empty(0)
    measured = {ENCODER.name: Judged(nothing, nothing)}
    return Trial(sample, {}, forms={ENCODER.name: ENCODER}, measured=measured, nearest={ENCODER.name: {}})


def draw_fitted(train: Int[np.ndarray, " row"], most: int, seed: int) -> Int[np.ndarray, " drawn"]:
    """The training rows, or where they are more than `most` so many drawn from them, ascending."""
    if len(train) <= most:
        return train
    return np.sort(np.random.default_rng(seed).choice(train, most, replace=False))


def untrained(trial: Trial) -> Form:
    """The encoder's best form by the criterion, at the same side."""
    own = [name for name, form in trial.forms.items() if (form.model, form.scale) == ("encoder", trial.scale)]
    return trial.forms[max(own, key=trial.value)]


def reasons(trial: Trial, decision: Decision, errors: float) -> list[str]:
    """Why this one, in sentences."""
    fallen = sum(bool(tasks) for tasks in decision.falls.values())
    lines = [
        f"{len(trial.forms)} candidates were compared on {len(trial.sample.rows)} training images of "
        f"{len(trial.sample.parts())} task(s); {fallen} fall below the encoder on a task.",
        f"{decision.best} has the highest criterion ({100 * trial.value(decision.best):.1f}).",
    ]
    if decision.best != decision.chosen:
        lines[-1] = lines[-1].removesuffix(".") + (
            f"; {decision.chosen} ({100 * trial.value(decision.chosen):.1f}) is as good within {errors:g} standard "
            "errors and keeps more of the reference's neighbours."
        )
    if trial.scale != 1:
        lines.append(
            f"All but the encoder as it is see images at {trial.scale:g} times its side, which was chosen before."
        )
    return [*lines, f"The encoder as it is has {100 * trial.value(ENCODER.name):.1f}."]


def write_candidates(trial: Trial, decision: Decision, file: Path) -> None:
    """One line per candidate, the best first."""
    parts = trial.sample.parts()
    header = ["name", "model", "strength", "scale", "mirrored", "blocks", "layer", "dim", "cost"]
    rows = [[*header, "criterion", "agreement", "falls", "chosen", *parts]]
    for name in sorted(trial.forms, key=trial.value, reverse=True):
        form, measured = trial.forms[name], trial.measured[name]
        row = [name, form.model, form.strength, form.scale, int(form.mirrored), form.blocks, form.layer, form.dim or ""]
        agreement = criterion.mean_over_tasks(measured.agreement, trial.sample)
        row += [f"{value:.6g}" for value in (form.cost, trial.value(name), agreement)]
        row += [" ".join(decision.falls[name]), int(name == decision.chosen)]
        rows.append(row + [f"{measured.score[own].mean():.6g}" for own in parts.values()])
    write_csv(file, rows)


def neighbour_table(trial: Trial, chosen: str, collection: Collection) -> pa.Table:
    """Per sampled image its nearest under the encoder and the chosen model, best first, as rows within the task."""
    own = collection.rows[trial.sample.rows]
    records = {"task": [], "row": [], "encoder": [], "chosen": []}
    for task, places in trial.sample.parts().items():
        records["task"] += [task] * len(places)
        records["row"] += own[places].tolist()
        for key, name in (("encoder", ENCODER.name), ("chosen", chosen)):
            records[key] += own[places][trial.nearest[name][task]].tolist()
    rows = pa.list_(pa.int64())
    return pa.table(
        records, pa.schema([("task", pa.string()), ("row", pa.int64()), ("encoder", rows), ("chosen", rows)])
    )


def summary(trial: Trial, chosen: str, why: list[str], uncertain: list[str]) -> dict:
    """What `choice.json` says; criteria with the bounds of their 95 % interval over images."""
    parts = trial.sample.parts()
    compared = {}
    for column, of in [("mean", [*parts.values()]), *((task, [own]) for task, own in parts.items())]:
        before, after = (trial.measured[name].score for name in (ENCODER.name, chosen))
        rows = {"encoder": before, "chosen": after, "difference": after - before}
        compared[column] = {key: interval([values[own] for own in of]) for key, values in rows.items()}
    form = trial.forms[chosen]
    return {
        "name": chosen,
        "form": form.__dict__,
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
    output: Path,
    *,
    params: Params,
    cost: float,
    lists: Lists,
    seed: int,
) -> str:
    models = {"encoder": resolution} | {name: adaptor / name for name in lists.sizes}
    models |= {name: fusion / name for name in lists.fusions if name != "supervised"}
    models |= {f"distilled_{name}": distillation / name for name in lists.distillations}
    tasks = list(lists.tasks)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)
    settings = params.criterion
    plain = load(encoder).to(device.best())
    with processes.alone():
        sample = criterion.tell(collection, plain, pixels, params.criterion, seed)
        fitted = draw_fitted(collection.train, params.fitted, seed)
        known = len(sample.rows) > 0
        trial = compare(plain.cpu(), models, pixels, sample, fitted, params, cost) if known else untold(sample)
    trained = dict.fromkeys(collection.tasks[collection.train])
    uncertain = [task for task in trained if task not in sample.parts()]
    if len(sample.rows):
        decision = decide(trial.measured, ENCODER.name, sample, params.errors, params.guard)
        why = reasons(trial, decision, params.errors)
    else:
        decision = Decision(ENCODER.name, ENCODER.name, {ENCODER.name: []})
        why = ["No task can tell. This is the encoder as it is, the safest candidate."]
    if uncertain:
        why.append(
            f"Left out, for fewer than {settings.fewest} training images or images all alike cannot tell: "
            f"{', '.join(uncertain)}."
        )
    chosen = decision.chosen
    forms = agreed([trial.forms[chosen], untrained(trial)])
    model, rival = (
        build(encoder if one == ENCODER else models[one.model], one, pixels, collection, params) for one in forms
    )
    with outputs.folder(output) as folder:
        save(model, folder)
        (folder / "untrained").mkdir()
        save(rival, folder / "untrained")
        learnt = {"tasks": list(trained), "images": len(collection.train)}
        said = summary(trial, chosen, why, uncertain) | {"learnt": learnt}
        (folder / "choice.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        write_candidates(trial, decision, folder / "criterion.csv")
        pq.write_table(neighbour_table(trial, chosen, collection), folder / "neighbours.parquet")
        text = card.text(model.config, said, trained, len(collection.train))
        (folder / "README.md").write_text(text, encoding="utf-8")
    return f"{chosen}, of {len(trial.forms)} candidates"


if __name__ == "__main__":
    command.run(main, Params, cost="resolution.cost")
