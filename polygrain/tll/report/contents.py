"""The numbers of a study of visual analogies, in percent, as its page shows them."""

from typing import Any

from polygrain.report import figures
from polygrain.report.figures import Line
from polygrain.tll.adaptation import results
from polygrain.tll.adaptation.results import Study
from polygrain.tll.extractors import published
from polygrain.tll.report.recall_curves import Curve, recall_curves

SHOWN_KS = (1, 5, 20, 100)
TITLES = {"concatenated": "Concatenated", "pca": "PCA"}


def title_of(row: str) -> str:
    """The name of a row for people."""
    return TITLES.get(row) or f"Adapted, σ = {row.removeprefix('sigma_')}"


def styles(rows: list[str]) -> dict[str, str]:
    """A CSS class for each row; the last sigma is the strongest."""
    adapted = [row for row in rows if row not in TITLES]
    return {row: f"s-{row}" for row in TITLES} | dict.fromkeys(adapted, "s-low") | dict.fromkeys(adapted[-1:], "s-high")


def recall_chart(study: Study) -> str:
    """aR@k of all rows at their last step, with bands."""
    curves = []
    for row in study.rows:
        spreads = [results.over_runs(column) for column in study.recalls[row, "last"].T]
        means, deviations, _ = zip(*spreads, strict=True)
        curves.append(Curve(title_of(row), styles(study.rows)[row], means, deviations))
    label = "aR@k: " + ", ".join(f"{curve.name} {curve.means[0]:.1f} at k = 1" for curve in curves)
    return recall_curves(label, curves)


def training_chart(study: Study, column: str, factor: float, y_label: str) -> str:
    """A column of the history over steps, a line for each sigma."""
    points: dict[str, list[tuple[float, float]]] = {}
    for entry in study.history:
        points.setdefault(entry["row"], []).append((float(entry["step"]), factor * float(entry[column])))
    lines = [Line(title_of(row), styles(study.rows)[row], line) for row, line in points.items()]
    label = f"{y_label}, last step: {figures.last_values(lines)}"
    return figures.line_chart(label, lines, x_label="step", y_label=y_label)


def charts(study: Study) -> list[dict[str, Any]]:
    """The charts of the page, with their titles."""
    recall = "aR@1 on test pairs, %"
    drawings = {
        "aR@k at the last step, bands of ± 2 standard deviations": recall_chart(study),
        "Loss over steps, mean over runs": training_chart(study, "loss", 1.0, "loss"),
        "aR@1 on the test pairs over steps": training_chart(study, "recall_at_1", 100.0, recall),
    }
    return [{"title": title, "drawing": drawing} for title, drawing in drawings.items()]


def factors(study: Study) -> list[dict[str, Any]]:
    """The last row's aR@k over that of the concatenated layers, beside the paper's factor for its best extractor."""
    pairs = {k: [study.spread(row, k) for row in ("concatenated", study.rows[-1])] for k in published.FACTORS}
    return [
        {"k": k, "ours": after.mean / before.mean, "printed": published.FACTORS[k]}
        for k, (before, after) in pairs.items()
        if before and after and before.mean
    ]


def queries(study: Study, before: str, after: str, count: int) -> list[tuple[str, int]]:
    """Test pairs of run 0 to show, as (reason, pair): the largest gains in rank, and as many of the largest losses.

    Gains are compared as ratios of ranks, so that 8 to 1 counts as more than 60 to 40.
    """
    old, new = (study.ranks[row][0] for row in (before, after))
    order = sorted(old, key=lambda pair: (new[pair] / old[pair], new[pair], pair))
    gains = [("Large gain", pair) for pair in order[:count] if new[pair] < old[pair]]
    losses = [("Large loss", pair) for pair in order[::-1][:count] if new[pair] > old[pair]]
    return gains + losses
