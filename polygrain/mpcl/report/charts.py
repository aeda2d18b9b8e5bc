"""The drawings of a pretraining run: what each head did, epoch by epoch."""

from collections.abc import Callable, Sequence

from polygrain.report import figures
from polygrain.report.figures import Line

HistoryRow = dict[str, float]


def charts(history: list[HistoryRow], heads: int) -> list[dict]:
    """Loss, accuracy and weight of each head, cosine of each pair, over epochs."""
    if not history:
        return []
    numbers = range(1, heads + 1)
    pairs = [(i, j) for i in numbers for j in numbers if i < j]

    def of_heads(key: str) -> dict[str, str]:
        return {f"head {m}": f"{key}_{m}" for m in numbers}

    def share(row: HistoryRow, column: str) -> float:
        """Weights of all heads sum to 1 or to their number."""
        return 100 * row[column] / sum(row[weight] for weight in of_heads("weight").values())

    drawn = [
        chart("Loss of each head", "loss", history, of_heads("loss")),
        chart("Accuracy of each head", "pairs found, %", history, of_heads("accuracy"), lambda row, c: 100 * row[c]),
        chart("Weight of each head", "share, %", history, of_heads("weight"), share),
    ]
    if pairs:
        guide = Line("least possible", "s-bound", [(0.0, -1 / (heads - 1))])
        cosines = {f"{i} and {j}": f"cosine_{i}_{j}" for i, j in pairs}
        drawn.append(chart("Cosine between heads", "mean cosine", history, cosines, guides=[guide]))
    return [*drawn, chart("Spread of the features", "spread (1 = even)", history, {"spread": "spread"})]


def chart(
    title: str,
    y_label: str,
    history: list[HistoryRow],
    columns: dict[str, str],
    value: Callable[[HistoryRow, str], float] = lambda row, column: row[column],
    guides: Sequence[Line] = (),
) -> dict:
    """A chart over epochs with a line for each of the columns, by the line's name."""
    lines = [
        Line(name, f"s-h{i % 8 + 1}", [(row["epoch"], value(row, column)) for row in history])
        for i, (name, column) in enumerate(columns.items())
    ]
    label = f"{title}, last epoch: {figures.last_values(lines)}"
    return {"title": title, "drawing": figures.line_chart(label, lines, list(guides), x_label="epoch", y_label=y_label)}
