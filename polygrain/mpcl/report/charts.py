"""The drawings of a pretraining run: what each head did, epoch by epoch."""

from polygrain.report import figures
from polygrain.report.figures import Line


def whole(row: dict[str, float], key: str, heads: int) -> float:
    """What a value is a share of: the sum of all heads' weights, which is 1 or M, and 1 for everything else."""
    return sum(row[f"weight_{m}"] for m in range(1, heads + 1)) if key == "weight" else 1.0


def charts(history: list[dict[str, float]], heads: int) -> list[dict]:
    """Loss, accuracy and weight of each head, cosine of each pair, over epochs."""
    pairs = [(i, j) for i in range(1, heads + 1) for j in range(i + 1, heads + 1)]
    wanted = [
        ("Loss of each head", "loss", "loss", 1.0, [(f"head {m}", f"loss_{m}") for m in range(1, heads + 1)]),
        ("Accuracy of each head", "accuracy", "pairs found, %", 100.0, []),
        ("Weight of each head", "weight", "share, %", 100.0, []),
        ("Cosine between heads", "cosine", "mean cosine", 1.0, [(f"{i} and {j}", f"cosine_{i}_{j}") for i, j in pairs]),
        ("Spread of the features", "spread", "spread (1 = even)", 1.0, [("spread", "spread")]),
    ]
    drawn = []
    for title, key, y_label, factor, columns in wanted:
        columns = columns or [(f"head {m}", f"{key}_{m}") for m in range(1, heads + 1)]
        if not history or columns[0][1] not in history[0]:
            continue
        lines = [
            Line(
                name,
                f"s-h{i % 8 + 1}",
                [(row["epoch"], factor * row[column] / whole(row, key, heads)) for row in history],
            )
            for i, (name, column) in enumerate(columns)
        ]
        guides = []
        if key == "cosine":
            guides = [Line("least possible", "s-bound", [(0.0, -1 / (heads - 1))])]
        label = f"{title}, last epoch: {figures.last_values(lines)}"
        drawing = figures.line_chart(label, lines, guides, x_label="epoch", y_label=y_label)
        drawn.append({"title": title, "drawing": drawing})
    return drawn
