"""What to use after a run, in words: the adapted model, the encoder at its best without training, or the encoder."""

import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from polygrain.findings import scores
from polygrain.findings.chosen import ENCODER, Bounded, Choice
from polygrain.report import page

MODEL, AT_ITS_BEST, AS_IT_IS = "Use the model", "Use the encoder at its best", "Use the encoder as it is"
NOTHING_BETTER = "No candidate was better without falling on a task, so the encoder itself was chosen."
CANNOT_TELL = "Without labels it cannot be told which model is better on these images. The encoder is the safest."


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
    """The advice after a run whose choice lies in `folder`; commands are typed in `root`, the project's folder.

    Where test labels measured the chosen model and the encoder, their mean over tasks decides, as it is shown.
    Elsewhere the choice decides, which was made without labels.
    """
    means = {row: table.get(row, scores.MEAN) for row in (scores.CHOSEN, scores.UNTRAINED, ENCODER)}
    if choice.is_encoder:
        use, why, place = AS_IT_IS, [NOTHING_BETTER if choice.compared else CANNOT_TELL], folder
    elif math.isnan(means[scores.CHOSEN]) or math.isnan(means[ENCODER]):
        use, why, place = use_of_chosen(choice), by_criterion(choice), folder
    else:
        best = max(means, key=lambda row: scores.rank(round(means[row], 1)))
        use, place = {
            scores.CHOSEN: (use_of_chosen(choice), folder),
            scores.UNTRAINED: (AT_ITS_BEST, folder / "untrained"),
            ENCODER: (AS_IT_IS, folder.with_name("encoder")),
        }[best]
        why = by_labels(choice, table, means, best)
    rows = [
        TaskRow(
            task,
            choice.compared.get(task),
            *(table.get(row, task) for row in (ENCODER, scores.UNTRAINED, scores.CHOSEN)),
        )
        for task in tasks
    ]
    return Advice(use, why, shlex.quote(os.path.relpath(place, root)), rows)


def use_of_chosen(choice: Choice) -> str:
    """The chosen one is a model, or the encoder in another form."""
    return AT_ITS_BEST if choice.taken and choice.taken.model == ENCODER else MODEL


def by_criterion(choice: Choice) -> list[str]:
    """The criterion on the mean, or on the only task."""
    if not choice.compared:
        return ["It was chosen without labels; the criterion has no value for it."]
    sides = choice.compared.get(scores.MEAN) or next(iter(choice.compared.values()))
    sentences = [
        f"No test image has a label, so the criterion decided, which needs none: {sides['encoder'].value:.1f} for the "
        f"encoder, {sides['chosen'].value:.1f} for the chosen one."
    ]
    if not sides["difference"].is_clear:
        sentences.append("This difference may be chance: judge a few results by eye before you rely on it.")
    return sentences


def by_labels(choice: Choice, table: scores.Scores, means: dict[str, float], best: str) -> list[str]:
    """The three means, the tasks that fall, and whether the labels disagree with the choice."""
    where = f"over {len(table.tasks)} tasks" if len(table.tasks) > 1 else f"on {table.tasks[0]}"
    names = {
        scores.CHOSEN: "the model" if use_of_chosen(choice) == MODEL else "the encoder in its chosen form",
        scores.UNTRAINED: "the encoder at its best without training",
        ENCODER: "the encoder as it is",
    }
    parts = [f"{name} {means[row]:.1f} %" for row, name in names.items() if row in table.rows]
    sentences = [f"R-Precision {where}: {', '.join(parts)}."]
    gains = table.differences(best, ENCODER)
    falling = [f"{task} {page.signed(gains[task])}" for task in table.tasks if page.trend(gains[task]) < 0]
    if falling:
        sentences.append(f"It is worse on {', '.join(falling)}: use the encoder for these.")
    if best != scores.CHOSEN:
        sentences.append("The choice was made without labels; these test labels disagree with it.")
    return sentences
