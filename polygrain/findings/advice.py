"""What to use after a run, in words: the adapted model, the encoder at its best without training, or the encoder."""

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polygrain.findings import scores
from polygrain.findings.chosen import ENCODER, Bounded, Choice
from polygrain.findings.collection import SMOOTHED
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
    advised: float

    @property
    def is_labelled(self) -> bool:
        return not math.isnan(self.encoder)


@dataclass(frozen=True)
class Advice:
    """What to use: a heading, sentences that say why, the folder that commands take, and whether they smooth.

    `row` is the row of the table that this gives; `before`, `after` and `gains` are R-Precision of the encoder and of
    it, NaN and {} where no label measured them.
    """

    use: str
    why: list[str]
    folder: str
    rows: list[TaskRow]
    row: str
    smooths: bool
    before: float
    after: float
    gains: dict[str, float]

    @property
    def falling(self) -> list[str]:
        return [task for task, gain in self.gains.items() if page.trend(gain) < 0]


def advise(
    choice: Choice,
    table: scores.Scores,
    searched: scores.Scores,
    tasks: list[str],
    folder: Path,
    root: Path,
    unsmoothed: Sequence[str] = (),
) -> Advice:
    """The advice after a run whose choice lies in `folder`; commands are typed in `root`, the project's folder.

    Where test labels measured the chosen model and the encoder, their mean over tasks in `table` decides, as it is
    shown. Elsewhere the choice decides, which was made without labels. `searched`, of the protocol `collection`, says
    whether smoothing pays; `unsmoothed` are tasks that stay as they are.
    """
    means = {row: table.get(row, scores.MEAN) for row in (scores.CHOSEN, scores.UNTRAINED, ENCODER)}
    best = ENCODER if choice.is_encoder else scores.CHOSEN
    is_measured = not math.isnan(means[scores.CHOSEN]) and not math.isnan(means[ENCODER])
    if is_measured and not choice.is_encoder:
        best = max(means, key=lambda row: scores.rank(round(means[row], 1)))
    use, place = {
        scores.CHOSEN: (use_of_chosen(choice), folder),
        scores.UNTRAINED: (AT_ITS_BEST, folder / "untrained"),
        ENCODER: (AS_IT_IS, folder if choice.is_encoder else folder.with_name("encoder")),
    }[best]
    smoothing = searched.differences(best + SMOOTHED, best)
    is_unsmoothed = best + SMOOTHED not in searched.rows and not math.isnan(searched.get(best, scores.MEAN))
    smooths = not is_unsmoothed and page.trend(smoothing.get(scores.MEAN, math.nan)) >= 0
    row = best + SMOOTHED if smooths and best + SMOOTHED in table.rows else best
    if choice.is_encoder:
        why = [NOTHING_BETTER if choice.compared else CANNOT_TELL]
    elif is_measured:
        why = by_labels(choice, table, best)
    else:
        why = by_criterion(choice)
    losing = [f"{task} {page.signed(smoothing[task])}" for task in searched.tasks if page.trend(smoothing[task]) < 0]
    if is_unsmoothed:
        why[-1] += " This is of images that are not smoothed, so the commands do not smooth, either."
    elif not smooths:
        why.append(
            f"Smoothing is left out of the commands: by the labels it adds {page.signed(smoothing[scores.MEAN])}."
        )
    elif losing:
        why.append(f"Smoothing is worse on {', '.join(losing)}: add --no-smooth there.")
    if smooths and unsmoothed:
        why.append(f"Not smoothed: {', '.join(unsmoothed)}: add --no-smooth there.")
    gains = table.differences(row, ENCODER) if is_measured else {}
    rows = [TaskRow(task, choice.compared.get(task), table.get(ENCODER, task), table.get(row, task)) for task in tasks]
    before, after = (table.get(name, scores.MEAN) if is_measured else math.nan for name in (ENCODER, row))
    gains = {task: gains[task] for task in table.tasks if task in gains}
    return Advice(use, why, shlex.quote(os.path.relpath(place, root)), rows, row, smooths, before, after, gains)


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


def by_labels(choice: Choice, table: scores.Scores, best: str) -> list[str]:
    """What each step gives on the mean, the tasks that fall, and whether the labels disagree with the choice."""
    where = f"over {len(table.tasks)} tasks" if len(table.tasks) > 1 else f"on {table.tasks[0]}"
    names = {
        ENCODER: "the encoder as it is",
        scores.UNTRAINED: "at its best without training",
        scores.CHOSEN: "the model" if use_of_chosen(choice) == MODEL else "in its chosen form",
        best + SMOOTHED: "with images smoothed by their neighbours",
    }
    parts = [f"{name} {table.get(row, scores.MEAN):.1f} %" for row, name in names.items() if row in table.rows]
    sentences = [f"R-Precision {where}: {', '.join(parts)}."]
    if best != scores.CHOSEN:
        sentences.append("The choice was made without labels; these test labels disagree with it.")
    return sentences
