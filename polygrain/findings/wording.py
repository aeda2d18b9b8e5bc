"""Names of the models in the report, and the best rows."""

import math
from collections.abc import Callable, Iterable

from polygrain.findings import scores
from polygrain.findings.chosen import CandidateRow
from polygrain.report import figures
from polygrain.report.rows import LINES, WHITENED, row_of

LEAST_TRACK = 4.0  # points; on a shorter one noise would look like a gain


def form_of(candidate: CandidateRow) -> str:
    """A candidate of the choice in words: model, input, blocks and last layer."""
    words = [row_of(candidate.model).title]
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
    "row_of": row_of,
    "form_of": form_of,
    "whitened": WHITENED,
    "mean": scores.MEAN,
    "oracle": scores.ORACLE,
    "lines": [(name, *line) for name, line in LINES.items()],
}


def best_rows(table: scores.Scores) -> dict[str, list[str]]:
    """The rows of highest R-Precision of each column as shown, but those that saw labels."""
    comparable = [row for row in table.rows if row_of(row).is_comparable]
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
