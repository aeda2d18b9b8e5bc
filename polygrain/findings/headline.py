"""The few numbers that a commit is judged by, for `dvc metrics`, and the sentence with which a run ends."""

import math

from polygrain.findings import chosen, scores
from polygrain.findings.advice import Advice
from polygrain.findings.collection import SMOOTHED

Numbers = dict[str, dict[str, float]]


def numbers(table: scores.Scores, made: chosen.Choice, searched: scores.Scores, advice: Advice) -> Numbers:
    """Encoder, encoder at its best and chosen model by two metrics and by the criterion, as far as they are known.

    Beside them R-Precision of the chosen model with smoothed images, and `result`: what the advice gives.
    """
    rows = [row for row in (chosen.ENCODER, scores.UNTRAINED, scores.CHOSEN) if row in table.rows]
    result = {
        metric: {row: table.get(row, scores.MEAN, metric) for row in rows} for metric in ("r_precision", "recall_at_1")
    }
    result["criterion"] = {side: made.compared["mean"][side].value for side in chosen.SIDES[:2] if made.compared}
    result["smoothed"] = {scores.CHOSEN: searched.get(scores.CHOSEN + SMOOTHED, scores.MEAN)}
    result["result"] = {"encoder": advice.before, "advised": advice.after}
    known = {
        name: {row: round(value, 3) for row, value in of.items() if not math.isnan(value)}
        for name, of in result.items()
    }
    return {name: values for name, values in known.items() if values}


def spoken(known: Numbers) -> str | None:
    """What the numbers come to, in one sentence; None where nothing was measured."""
    for name, words, of in (
        ("result", "{:.0f} of 100 right among the R nearest (encoder {:.0f})", ("advised", "encoder")),
        ("criterion", "no labels: by the criterion, which needs none, {:.0f} (encoder {:.0f})", ("chosen", "encoder")),
    ):
        if all(side in known.get(name, {}) for side in of):
            return words.format(*(known[name][side] for side in of))
    return None
