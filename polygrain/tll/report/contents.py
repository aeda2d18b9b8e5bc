"""The numbers of a study of visual analogies, in percent, as its page shows them."""

import numpy as np

from polygrain.report import figures
from polygrain.report.figures import Line
from polygrain.tll.adaptation import results
from polygrain.tll.adaptation.results import Comparison
from polygrain.tll.report import recall_curves

SHOWN_KS = (1, 5, 20, 100)
STYLES = {"concatenated": "s-concatenated", "pca": "s-pca"}


def title_of(row: str) -> str:
    """The name of a row for people."""
    known = {"concatenated": "Concatenated", "pca": "PCA"}
    return known.get(row) or f"Adapted, σ = {row.removeprefix('sigma_')}"


def styles(rows: list[str]) -> dict[str, str]:
    """A CSS class for each row; the last sigma is the strongest."""
    adapted = [row for row in rows if row not in STYLES]
    return STYLES | dict.fromkeys(adapted, "s-low") | dict.fromkeys(adapted[-1:], "s-high")


def curves(study: Comparison) -> str:
    """aR@k of all rows at their last step, with bands."""
    style, drawn = styles(study.rows), []
    for row in study.rows:
        values = study.recalls[row, "last"]
        spreads = [results.over_runs(column) for column in values.T]
        means, deviations = [one.mean for one in spreads], [one.deviation for one in spreads]
        drawn.append(recall_curves.Curve(title_of(row), style[row], means, deviations))
    label = "aR@k: " + ", ".join(f"{curve.name} {curve.means[0]:.1f} at k = 1" for curve in drawn)
    return recall_curves.recall_curves(label, drawn)


def training(study: Comparison, column: str, factor: float, y_label: str) -> str:
    """A column of the history over steps, a line for each sigma."""
    style, lines = styles(study.rows), []
    for row in dict.fromkeys(entry["row"] for entry in study.history):
        entries = [entry for entry in study.history if entry["row"] == row]
        points = [(float(entry["step"]), factor * float(entry[column])) for entry in entries]
        lines.append(Line(title_of(row), style[row], points))
    label = f"{y_label}, last step: {figures.last_values(lines)}"
    return figures.line_chart(label, lines, x_label="step", y_label=y_label)


def charts(study: Comparison) -> list[dict]:
    return [
        {"title": "aR@k at the last step, bands of ± 2 standard deviations", "drawing": curves(study)},
        {"title": "Loss over steps, mean over runs", "drawing": training(study, "loss", 1.0, "loss")},
        {
            "title": "aR@1 on the test pairs over steps",
            "drawing": training(study, "recall_at_1", 100.0, "aR@1 on test pairs, %"),
        },
    ]


def groups(study: Comparison, names: list[str]) -> list[dict]:
    """aR@1 of each group of pairs, over all runs; empty where there is one group."""
    found = []
    for group in sorted(set(names)) if len(set(names)) > 1 else []:
        row = {"group": group or "(none)", "tests": 0}
        for name, runs in study.ranks.items():
            ranks = [rank for run in runs.values() for pair, rank in run.items() if names[pair] == group]
            row |= {"tests": len(ranks), name: 100 * float(np.mean([rank == 1 for rank in ranks])) if ranks else None}
        found.append(row)
    return found


def queries(study: Comparison, before: str, after: str, count: int) -> list[tuple[str, int]]:
    """Test pairs of run 0 to show, as (reason, pair): as many of the largest losses as of the largest gains in rank.

    Gains are compared as ratios of ranks, so that 8 to 1 counts as more than 60 to 40.
    """
    old, new = (study.ranks[row][0] for row in (before, after))
    order = sorted(old, key=lambda pair: (new[pair] / old[pair], new[pair], pair))
    gains = [("Large gain", pair) for pair in order[:count] if new[pair] < old[pair]]
    losses = [("Large loss", pair) for pair in order[::-1][:count] if new[pair] > old[pair]]
    return gains + losses
