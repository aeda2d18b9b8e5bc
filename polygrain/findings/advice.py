"""The advice after a run, in words: the recommended model, or one that the test labels prefer to it."""

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

MODEL, PLAINER = "Use the recommended model", "Use the model without training"
AS_IT_IS, ENCODER_SMOOTHED = "Use the encoder as it is", "Use the encoder, with smoothed images"
NOTHING_BETTER = (
    "No candidate is better than the encoder on the mean without falling on a task. So the encoder is recommended."
)
CANNOT_TELL = "Without labels it cannot be told which model is better on these images. The encoder is the safest."


@dataclass(frozen=True)
class TaskRow:
    """One task before and after: its criterion, which needs no label, and R-Precision; NaN where there is none."""

    task: str
    criterion: dict[str, Bounded] | None
    encoder: float
    recommended: float

    @property
    def is_labelled(self) -> bool:
        return not math.isnan(self.encoder)


@dataclass(frozen=True)
class Advice:
    """The model to use: a heading, reasons, the folder that commands take, and whether they smooth.

    `row` is the row of the table that this gives; `before`, `after` and `gains` are R-Precision of the encoder and of
    it, `first_before` and `first_after` Recall@1, NaN and {} where no label measured them.
    """

    use: str
    why: list[str]
    folder: str
    rows: list[TaskRow]
    row: str
    smooths: bool
    before: float
    after: float
    first_before: float
    first_after: float
    gains: dict[str, float]
    queries: dict[str, int]

    @property
    def falling(self) -> list[str]:
        return [task for task, gain in self.gains.items() if is_fall(gain, self.queries.get(task))]

    @property
    def unclear(self) -> list[str]:
        """Tasks that are lower by less than one query can make."""
        return [task for task, gain in self.gains.items() if page.trend(gain) < 0 and task not in self.falling]


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

    Where test labels measured the recommended model and the encoder, their mean over tasks in `table` decides, as it is
    shown. Elsewhere the choice decides, which was made without labels. `searched`, of the protocol `collection`, says
    whether smoothing pays; `unsmoothed` are tasks that stay as they are.
    """
    means = {row: table.get(row, scores.MEAN) for row in (scores.RECOMMENDED, scores.WITHOUT_TRAINING, ENCODER)}
    is_measured = not math.isnan(means[scores.RECOMMENDED]) and not math.isnan(means[ENCODER])
    best = ENCODER if choice.is_encoder else scores.RECOMMENDED
    if choice.is_encoder:
        why = [NOTHING_BETTER if choice.compared else CANNOT_TELL]
    elif is_measured:
        best = max(means, key=lambda row: scores.rank(round(means[row], 1)))
        why = by_labels(choice, searched, best)
    else:
        why = by_criterion(choice, table)
    smooths, words = about_smoothing(best, searched, unsmoothed)
    why += words + about_first_hit(best, smooths, searched)
    row = best + SMOOTHED if smooths and best + SMOOTHED in table.rows else best
    use, place = {
        scores.RECOMMENDED: (MODEL, folder),
        scores.WITHOUT_TRAINING: (PLAINER, folder / "without_training"),
        ENCODER: (
            AS_IT_IS if row == ENCODER else ENCODER_SMOOTHED,
            folder if choice.is_encoder else folder.with_name("encoder"),
        ),
    }[best]
    rows = [TaskRow(task, choice.compared.get(task), table.get(ENCODER, task), table.get(row, task)) for task in tasks]
    gains = dict[str, float]()
    before = after = first_before = first_after = math.nan
    if is_measured:
        found = table.differences(row, ENCODER)
        gains = {task: found[task] for task in table.tasks if task in found}
        measures = ("r_precision", "recall_at_1")
        before, after, first_before, first_after = (
            table.get(name, scores.MEAN, measure) for measure in measures for name in (ENCODER, row)
        )
    typed = shlex.quote(os.path.relpath(place, root))
    return Advice(use, why, typed, rows, row, smooths, before, after, first_before, first_after, gains, table.queries)


def about_smoothing(best: str, searched: scores.Scores, unsmoothed: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether the commands smooth, and what to say of it: they do unless labels show a loss on the mean."""
    smoothed, gains = best + SMOOTHED, searched.differences(best + SMOOTHED, best)
    if smoothed not in searched.rows and not math.isnan(searched.get(best, scores.MEAN)):
        return False, ["The commands do not smooth: no smoothing was found to help on these images."]
    if page.trend(gains.get(scores.MEAN, math.nan)) < 0:
        lost = f"{-gains[scores.MEAN]:.1f}"
        return False, [f"Smoothing is left out of the commands: it lowers R-Precision by {lost} points."]
    words = []
    losing = [task for task in searched.tasks if is_fall(gains[task], searched.queries.get(task))]
    if losing:
        named = ", ".join(f"{task} {page.signed(gains[task])}" for task in losing)
        words.append(f"Smoothing lowers R-Precision on {named}: add --no-smooth there.")
    if unsmoothed:
        words.append(f"Smoothing was not found to help on {', '.join(unsmoothed)}: add --no-smooth there.")
    return True, words


def about_first_hit(best: str, smooths: bool, searched: scores.Scores) -> list[str]:
    """Recall@1 by the commands and in other ways; [] where no other way has more."""
    ways = {best + SMOOTHED: "by these commands", best: "with --no-smooth"} if smooths else {best: "by these commands"}
    ways = ways if ENCODER in ways else ways | {ENCODER: "with the encoder as it is"}
    known = {words: searched.get(row, scores.MEAN, "recall_at_1") for row, words in ways.items()}
    shares = {words: round(share, 1) for words, share in known.items() if not math.isnan(share)}
    if not shares:
        return []
    first, *others = shares.items()
    if not any(share > first[1] for _, share in others):
        return []
    named = ", ".join(f"{share:.1f} {words}" for words, share in shares.items())
    return [f"Recall@1 of new pictures: {named}. If only the very first one counts, take the way with the highest."]


def is_fall(gain: float, queries: int | None) -> bool:
    """Whether a change in points is a loss of a whole query or more: a smaller one is too few to tell."""
    return page.trend(gain) < 0 and (queries is None or -gain * queries >= 100)


def by_criterion(choice: Choice, table: scores.Scores) -> list[str]:
    """The criterion on the mean, or on the only task."""
    reason = "The encoder was not evaluated with labels" if table.tasks else "No test image has a label"
    if not choice.compared:
        return ["It was chosen without labels. The criterion has no value for it."]
    sides = choice.compared.get(scores.MEAN) or next(iter(choice.compared.values()))
    sentences = [
        f"{reason}, so the criterion decided, which needs none: {sides['encoder'].value:.1f} for the "
        f"encoder, {sides['recommended'].value:.1f} for the recommended model."
    ]
    if not sides["difference"].is_clear:
        sentences.append(
            "This difference may be chance: judge a few results on the search page, with the names hidden."
        )
    return sentences


def by_labels(choice: Choice, searched: scores.Scores, best: str) -> list[str]:
    """Whether the labels disagree with the choice, and whether its last layer pays behind smoothing."""
    sentences = []
    if best != scores.RECOMMENDED:
        sentences.append("The choice was made without labels; these test labels disagree with it.")
    side = scores.SIDE if scores.SIDE in searched.rows else ENCODER
    lost = searched.differences(scores.RECOMMENDED + SMOOTHED, side + SMOOTHED)[scores.MEAN]
    if page.trend(lost) < 0 and choice.taken and choice.taken.layer == "clusters":
        sentences.append(
            f"The last layer does not pay on these images: without it, smoothed images have {page.signed(-lost)}. "
            "choice: {layer: none} in the profile leaves it out."
        )
    return sentences
