"""What to use after a run, in words: the adapted model, the encoder at its best without training, or the encoder."""

import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from polygrain.grappa.report import scores
from polygrain.grappa.report.chosen import ENCODER, Bounded, Choice
from polygrain.report import page


@dataclass(frozen=True)
class TaskRow:
    """One task before and after: its criterion, which needs no label, and R-Precision; NaN where there is none."""

    task: str
    criterion: dict[str, Bounded] | None
    encoder: float
    untrained: float
    model: float

    @property
    def is_labelled(self) -> bool:
        return not math.isnan(self.encoder)


@dataclass(frozen=True)
class Advice:
    """What to use: a heading, sentences that say why, and the folder that commands take."""

    use: str
    why: list[str]
    folder: str
    rows: list[TaskRow]


def advise(choice: Choice, table: scores.Scores, tasks: list[str], folder: Path, root: Path) -> Advice:
    """The advice after a run whose choice lies in `folder`; commands are typed in `root`, the project's own folder.

    Where test labels measured the chosen model and the encoder they decide, on the mean over tasks as it is shown; else
    the choice does, which was made without labels.
    """
    measured = {row: table.get(row, scores.MEAN) for row in (scores.CHOSEN, scores.UNTRAINED, ENCODER)}
    if choice.is_encoder:
        use, why, place = "Use the encoder as it is", as_it_is(choice), folder
    elif math.isnan(measured[scores.CHOSEN]) or math.isnan(measured[ENCODER]):
        use, why, place = unlabelled(choice), by_criterion(choice), folder
    else:
        best = max(measured, key=lambda row: scores.rank(round(measured[row], 1)))
        uses = {scores.CHOSEN: unlabelled(choice), scores.UNTRAINED: "Use the encoder at its best"}
        places = {scores.CHOSEN: folder, scores.UNTRAINED: folder / "untrained", ENCODER: folder.with_name("encoder")}
        use, why, place = uses.get(best, "Use the encoder as it is"), by_labels(choice, table, best), places[best]
    rows = [row_of(task, choice, table) for task in tasks]
    return Advice(use, why, shlex.quote(os.path.relpath(place, root)), rows)


def row_of(task: str, choice: Choice, table: scores.Scores) -> TaskRow:
    measured = [table.get(row, task) for row in (ENCODER, scores.UNTRAINED, scores.CHOSEN)]
    return TaskRow(task, choice.compared.get(task), *measured)


def unlabelled(choice: Choice) -> str:
    """The chosen one is a model, or the encoder in another form."""
    return "Use the encoder at its best" if choice.taken and choice.taken.model == ENCODER else "Use the model"


def as_it_is(choice: Choice) -> list[str]:
    if choice.compared:
        return ["No candidate was better without falling on a task. What was chosen is the encoder itself."]
    return ["It cannot be told, without labels, which model is better on these images. The encoder is the safest."]


def by_criterion(choice: Choice) -> list[str]:
    """Without labels: what the criterion says on the mean, or on the one task that there is."""
    if not choice.compared:
        return ["It was chosen without labels; no criterion of it is known."]
    sides = choice.compared.get(scores.MEAN) or next(iter(choice.compared.values()))
    before, after = sides["encoder"].value, sides["chosen"].value
    sentences = [
        f"No test image has a label, so it was judged by the criterion that needs none: {before:.1f} for the encoder, "
        f"{after:.1f} for what was chosen."
    ]
    if not sides["difference"].is_clear:
        sentences.append("That difference may be chance: judge a few results by eye before you rely on it.")
    return sentences


def by_labels(choice: Choice, table: scores.Scores, best: str) -> list[str]:
    """With labels: the three on the mean, what falls, and which tasks nobody could measure."""
    means = {row: f"{table.get(row, scores.MEAN):.1f} %" for row in (scores.CHOSEN, scores.UNTRAINED, ENCODER)}
    where = f"over {len(table.tasks)} tasks" if len(table.tasks) > 1 else f"on {table.tasks[0]}"
    at_best = f", the encoder at its best without training {means[scores.UNTRAINED]}"
    known = at_best if scores.UNTRAINED in table.rows else ""
    name = "the encoder in its chosen form" if unlabelled(choice) != "Use the model" else "the model"
    sentences = [f"R-Precision {where}: {name} {means[scores.CHOSEN]}{known}, the encoder as it is {means[ENCODER]}."]
    gains = table.differences(best, ENCODER)
    falling = [f"{task} {page.signed(gains[task])}" for task in table.tasks if page.trend(gains[task]) < 0]
    if falling:
        sentences.append(f"Less is found on {', '.join(falling)}: for these alone use the encoder.")
    if best != scores.CHOSEN:
        sentences.append("The choice was made without labels; these test labels say otherwise.")
    return sentences
