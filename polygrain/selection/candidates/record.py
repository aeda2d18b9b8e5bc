"""What the choice writes about itself: its reasons, every candidate, and the nearest of the sampled images."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from polygrain.compute.counted import counted
from polygrain.selection import criterion
from polygrain.selection.candidates.decision import Decision, interval
from polygrain.selection.candidates.judges import Neighbours, Settings
from polygrain.selection.candidates.trial import ENCODER, Trial
from polygrain.store.image_table import ImageTable

CANNOT_TELL = "No task has enough images that differ to compare candidates. So the encoder as it is was taken."


def reasons(trial: Trial, decision: Decision, settings: Settings) -> list[str]:
    """Why this one, in sentences."""
    lines = comparison(trial, decision, settings) if len(trial.sample.rows) else [CANNOT_TELL]
    if trial.uncertain:
        lines.append(
            f"These tasks were left out, as they have fewer than {settings.criterion.fewest} training images, or only "
            f"images that look alike: {', '.join(trial.uncertain)}."
        )
    return lines


def about_layer(granularities: Sequence[str]) -> str:
    """Which clusters make the last layer."""
    return (
        "The last layer was computed from views of the images, and from clusters of "
        f"{counted(len(granularities), 'granularity', 'granularities')} ({', '.join(granularities)})."
    )


def about_sides(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Which sides of the input were tried, by the rows of `recall.csv`; nothing where there was one alone."""
    if len(rows) < 2:
        return []
    found = ", ".join(f"{100 * float(row['recall']):.1f} % of the images at {row['side']} px" for row in rows)
    (side,) = (row["side"] for row in rows if row["chosen"] == "1")
    return [
        f"Of two views of an image one finds the other first, for {found}. "
        f"{side} px is the largest side that is not clearly worse than the best."
    ]


def comparison(trial: Trial, decision: Decision, settings: Settings) -> list[str]:
    """How many were compared, which is best and why it was not taken, where it was not."""
    fallen = sum(bool(tasks) for tasks in decision.falls.values())
    best, chosen, encoder = (100 * trial.value(name) for name in (decision.best, decision.chosen, ENCODER.name))
    lines = [
        f"The criterion compared {counted(len(trial.candidates), 'candidate')} on "
        f"{counted(len(trial.sample.rows), 'image')} of {counted(len(trial.sample.parts()), 'task')}. It needs no "
        "labels and goes from 0 to 100; it is another measure than R-Precision.",
        f"Of the candidates that could be taken {decision.best} has the highest criterion, {best:.1f}. The encoder as "
        f"it is has {encoder:.1f}.",
    ]
    if fallen:
        lines.append(f"{counted(fallen, 'candidate')} could not be taken: clearly below the encoder on a task.")
    if decision.best != decision.chosen:
        lines.append(
            f"{decision.chosen} was taken. Its criterion, {chosen:.1f}, is within {settings.errors:g} standard errors "
            "of the highest, and its nearest images agree better with those of the frozen encoder at several input "
            "sides."
        )
    if trial.scale != 1:
        lines.append(
            f"The input of all candidates but the encoder as it is has {trial.scale:g} times the encoder's side, which "
            "the stage `resolution` chose."
        )
    return lines


def candidate_rows(trial: Trial, decision: Decision) -> list[list[Any]]:
    """`criterion.csv`: a line per candidate, the best first."""
    parts = trial.sample.parts()
    header = ["name", "model", "scale", "blocks", "layer", "dim", "cost"]
    rows = [[*header, "criterion", "agreement", "falls", "recommended", *parts]]
    for name in sorted(trial.candidates, key=trial.value, reverse=True):
        form, judged = trial.candidates[name].form, trial.candidates[name].judged
        agreement = criterion.mean_over_tasks(judged.agreement, trial.sample)
        row: list[Any] = [name, form.model, form.scale, form.blocks, form.layer]
        row += [form.dim or "", *(f"{value:.6g}" for value in (form.cost, trial.value(name), agreement))]
        row += [" ".join(decision.falls[name]), int(name == decision.chosen)]
        rows.append(row + [f"{judged.score[places].mean():.6g}" for places in parts.values()])
    return rows


def neighbour_table(trial: Trial, chosen: Neighbours, collection: ImageTable) -> pa.Table:
    """`neighbours.parquet`: the nearest of each sampled image, best first, as rows within its task."""
    rows = collection.rows[trial.sample.rows]
    records: dict[str, list[Any]] = {"task": [], "row": [], "encoder": [], "recommended": []}
    for task, places in trial.sample.parts().items():
        records["task"] += [task] * len(places)
        records["row"] += rows[places].tolist()
        for key, found in (("encoder", trial.candidates[ENCODER.name].neighbours), ("recommended", chosen)):
            records[key] += rows[places[found[task]]].tolist()
    lists = pa.list_(pa.int64())
    fields = [("task", pa.string()), ("row", pa.int64()), ("encoder", lists), ("recommended", lists)]
    return pa.table(records, pa.schema(fields))


def summary(trial: Trial, chosen: str, why: list[str], collection: ImageTable) -> dict[str, Any]:
    """`choice.json`; criteria with the bounds of their 95 % interval over images."""
    parts = trial.sample.parts()
    compared = {}
    for column, of in [("mean", [*parts.values()]), *((task, [places]) for task, places in parts.items())]:
        before, after = (trial.candidates[name].judged.score for name in (ENCODER.name, chosen))
        rows = {"encoder": before, "recommended": after, "difference": after - before}
        compared[column] = {key: interval([values[places] for places in of]) for key, values in rows.items()}
    return {
        "name": chosen,
        "form": asdict(trial.candidates[chosen].form),
        "why": why,
        "images": len(trial.sample.rows),
        "criterion": compared if parts else {},
        "uncertain": trial.uncertain,
        "learnt": {"tasks": list(dict.fromkeys(collection.tasks[collection.train])), "images": len(collection.train)},
    }
