"""How the report names the models, and which rows are best."""

import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from polygrain.findings import scores
from polygrain.findings.chosen import CandidateRow
from polygrain.report import figures

LEAST_TRACK = 4.0  # points; on a shorter one noise would look like a gain


class Title(NamedTuple):
    """The name of a row of the tables, and a few words on what it is."""

    name: str
    about: str


TITLES = {
    "pixels": ("Raw pixels", "no model"),
    "encoder": ("Encoder", "frozen: the model that you start from"),
    "resolution": ("Encoder at the chosen side", "a larger input, and nothing else"),
    "without_training": ("Without training", "the best form of the encoder: its input, and a last layer from clusters"),
    "oracle": ("Oracle", "best adaptor per task, chosen with test labels: not comparable"),
    "average": ("Average fusion", "one model: the mean of all adaptors"),
    "augmentation": ("Augmentation fusion", "one model; its attention learns from pairs of views"),
    "neighbour": ("Neighbour fusion", "one model; its attention learns from pairs of neighbours"),
    "static": ("Static neighbour fusion", "the same, with neighbours of the encoder in every epoch"),
    "supervised": ("Supervised fusion", "its attention learns from true labels: not comparable"),
    "one_set": ("One random set", "M+A_1: learns from pairs of views, without clusters"),
    "many_sets": ("Random sets, fused", "M*(random): trained together on pairs of views"),
    "closed_form": ("Closed form", "a linear layer from the pseudo-labels of all granularities"),
    "recommended": ("Recommended model", "chosen without labels"),
}

HOW = {"full": "all weights", "one": "one adaptor set", "many": "fused adaptor sets"}


def title_of(row: str) -> Title:
    model = row.removesuffix(scores.WHITENED).removesuffix(scores.CENTRED)
    forms = {scores.WHITENED: ", whitened", scores.CENTRED: ", centred"}
    form = next((words for suffix, words in forms.items() if row.endswith(suffix)), "")
    task, _, how = model.rpartition("-")
    if task and how in HOW:
        return Title(f"Supervised on {task}{form}", f"{HOW[how]}, true labels: not comparable")
    if model in TITLES:
        name, about = TITLES[model]
    elif re.fullmatch(r"(k|size)[0-9]+", model):
        name, about = f"Adaptor {model}", "one granularity"
    else:
        name, about = f"{model.replace('_', ' ').capitalize()} fusion", "one model"
    return Title(name + form, about)


def form_of(candidate: CandidateRow) -> str:
    """A candidate of the choice in words: model, input, blocks and last layer."""
    words = [title_of(candidate.model).name]
    if candidate.scale != 1:
        words.append(f"input of {candidate.scale:g} times the side")
    if candidate.blocks != 1:
        words.append(f"outputs of its last {candidate.blocks} blocks side by side")
    if candidate.layer == "clusters":
        words.append(f"a last layer of {candidate.dim} numbers from clusters")
    elif candidate.layer == "own":
        words.append("the last layer that it learnt")
    return ", ".join(words)


# For the templates, beside their content.
WORDS = {
    "title_of": title_of,
    "form_of": form_of,
    "whitened": scores.WHITENED,
    "mean": scores.MEAN,
    "oracle": scores.ORACLE,
}


def best_rows(table: scores.Scores, bounds: Collection[str] = ()) -> dict[str, list[str]]:
    """The rows of highest R-Precision of each column as shown, but the oracle and `bounds`, which saw labels."""
    comparable = [row for row in table.rows if row.removesuffix(scores.WHITENED) not in (scores.ORACLE, *bounds)]
    best = {}
    for column in table.columns:
        shown = {row: round(table.get(row, column), 1) for row in comparable}
        highest = max((value for value in shown.values() if not math.isnan(value)), default=math.nan)
        best[column] = [row for row, value in shown.items() if value == highest]
    return best


def placement(values: Iterable[float]) -> Callable[[float], str]:
    """The place of a value on a track from 0 to 100 %, on which all the values fit; small differences stay small."""
    finite = [value for value in values if not math.isnan(value)] or [0.0]
    middle, half = (min(finite) + max(finite)) / 2, max(max(finite) - min(finite), LEAST_TRACK) / 2
    low, *_, high = figures.ticks(middle - half, middle + half, 4)
    return lambda value: f"{3 + 94 * (0 if math.isnan(value) else value - low) / (high - low):.2f}"
