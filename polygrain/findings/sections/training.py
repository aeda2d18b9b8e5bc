"""The losses of adaptors and fusions over epochs, as charts and as a long table for `dvc plots`."""

from typing import Any

from polygrain.findings.outcome import Content, History, Outcome
from polygrain.report import figures
from polygrain.report.figures import Line
from polygrain.report.rows import LINES


def content(found: Outcome) -> Content:
    return {
        "training": charts(found.histories),
        "idle": [stage for stage, history in found.histories.items() if not history],
    }


def rows(histories: dict[str, History]) -> list[list[Any]]:
    """One row per epoch of every adaptor and fusion."""
    measured = ["accuracy", "criterion", "turnover"]
    epochs = [
        [stage, int(row["epoch"]), row["loss"], *(row.get(name, "") for name in measured)]
        for stage, rows in histories.items()
        for row in rows
    ]
    return [["stage", "epoch", "loss", *measured], *epochs]


def charts(histories: dict[str, History]) -> list[dict[str, Any]]:
    """Over epochs: loss and accuracy of adaptors, loss of fusions. Keys of `histories` look like `adaptor@k16`."""
    charts_of = (
        ("Adaptors: classification loss", "adaptor", "loss", "loss"),
        ("Adaptors: pseudo-label accuracy", "adaptor", "accuracy", "accuracy, %"),
        ("Fusions: Barlow Twins loss", "fusion", "loss", "loss"),
    )
    drawn = []
    for title, kind, key, y_label in charts_of:
        stages = [stage for stage in histories if stage.startswith(kind + "@")]
        lines = figures.finite([training_line(stage, stages, histories[stage], key) for stage in stages])
        if all(len(line.points) < 2 for line in lines):
            continue
        label = f"{title}, last epoch: {figures.last_values(lines)}"
        drawing = figures.line_chart(label, lines, x_label="epoch", y_label=y_label)
        drawn.append({"title": title, "drawing": drawing})
    return drawn


def training_line(stage: str, stages: list[str], history: History, key: str) -> Line:
    """One run over its epochs; coarse to fine adaptors are one hue, ever stronger."""
    kind, _, name = stage.partition("@")
    factor = 100.0 if key == "accuracy" else 1.0
    points = [(float(row["epoch"]), factor * row[key]) for row in history if key in row]
    if kind == "fusion":
        return Line(name, f"s-{name}" if name in LINES else "s-encoder", points)  # others are grey
    return Line(name, "s-k", points, 0.35 + 0.65 * (stages.index(stage) + 1) / len(stages))
