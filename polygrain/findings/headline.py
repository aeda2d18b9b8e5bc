"""The few numbers that a commit is judged by, for `dvc metrics`, and the sentence with which a run ends."""

import math

from polygrain.findings import chosen, scores
from polygrain.findings.advice import Advice
from polygrain.findings.collection import SMOOTHED

Numbers = dict[str, dict[str, float]]


def numbers(table: scores.Scores, made: chosen.Choice, searched: scores.Scores, advice: Advice) -> Numbers:
    """Encoder, model without training and recommended model by two metrics and the criterion, as far as they are known.

    Beside them R-Precision of the recommended model with smoothed images. `result` has R-Precision of the encoder and
    of the model to use, smoothed where the commands smooth; `first_hit` their Recall@1.
    """
    rows = [row for row in (chosen.ENCODER, scores.WITHOUT_TRAINING, scores.RECOMMENDED) if row in table.rows]
    result = {
        metric: {row: table.get(row, scores.MEAN, metric) for row in rows} for metric in ("r_precision", "recall_at_1")
    }
    result["criterion"] = {side: made.compared["mean"][side].value for side in chosen.SIDES[:2] if made.compared}
    result["smoothed"] = {scores.RECOMMENDED: searched.get(scores.RECOMMENDED + SMOOTHED, scores.MEAN)}
    used = advice.row if advice.row == chosen.ENCODER + SMOOTHED else advice.row.removesuffix(SMOOTHED)
    result["result"] = {chosen.ENCODER: advice.before, used: advice.after}
    result["first_hit"] = {chosen.ENCODER: advice.first_before, used: advice.first_after}
    known = {
        name: {row: round(value, 3) for row, value in of.items() if not math.isnan(value)}
        for name, of in result.items()
    }
    return {name: values for name, values in known.items() if values}


BY = {
    scores.RECOMMENDED: "",
    scores.WITHOUT_TRAINING: ", by the model without training",
    chosen.ENCODER + SMOOTHED: ", by the encoder with smoothed images",
}


def spoken(known: Numbers) -> str | None:
    """The numbers in one sentence; None where nothing was measured."""
    result, first = known.get("result", {}), known.get("first_hit", {})
    if result and first:
        before, (used, after) = result[chosen.ENCODER], list(result.items())[-1]
        if used == chosen.ENCODER:
            found = f"{after:.0f} of 100 right among the R nearest, and the very first for {first[used]:.0f} of 100"
            return f"the encoder is best as it is: {found}"
        return (
            f"{after:.0f} of 100 right among the R nearest (encoder {before:.0f}), and the very first right for "
            f"{first[used]:.0f} of 100 (encoder {first[chosen.ENCODER]:.0f}){BY.get(used, '')}"
        )
    sides = known.get("criterion", {})
    if chosen.ENCODER in sides and scores.RECOMMENDED in sides:
        before, after = sides[chosen.ENCODER], sides[scores.RECOMMENDED]
        return f"by the criterion, which needs no labels, {after:.0f} of 100 (encoder {before:.0f})"
    return None
