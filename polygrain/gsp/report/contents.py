"""The parts of a metric-learning page: tables, charts, pictures and sentences from the numbers of the runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from polygrain.config.items.gsp import Run
from polygrain.gsp.report import looks
from polygrain.report import figures
from polygrain.report.figures import Line
from polygrain.report.pictures import pictured

Chart = dict[str, Any]
PROTOTYPES = 24  # of a heat map
STYLES = ("encoder", "average", "neighbour", "augmentation", "k")
TITLES = {
    "map_at_r": "MAP@R",
    "r_precision": "R-Precision",
    "recall_at_1": "P@1",
    "accuracy": "accuracy",
    "accuracy_top5": "accuracy, top 5",
}


def title_of(metric: str) -> str:
    return TITLES.get(metric, metric.replace("recall_at_", "Recall@"))


def table(metrics: Mapping[str, Any], shown: Sequence[tuple[str, str, str]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows in percent from {run: {form: {metric: {mean, std}}}}; `shown` are (form, metric, column)."""
    rows: list[dict[str, Any]] = [{"name": run, "values": []} for run in metrics]
    for form, metric, _ in shown:
        cells = [{key: 100 * forms[form][metric][key] for key in ("mean", "std")} for forms in metrics.values()]
        highest = max(round(cell["mean"], 2) for cell in cells)
        for row, cell in zip(rows, cells, strict=True):
            row["values"].append(cell | {"is_best": round(cell["mean"], 2) == highest})
    return [column for _, _, column in shown], rows


def chart(title: str, points: Mapping[str, Iterable[tuple[float, float]]], x_label: str, y_label: str) -> list[Chart]:
    """One chart with a line for each name; none where nothing is finite."""
    lines = [Line(name, f"s-{STYLES[i % len(STYLES)]}", [*line]) for i, (name, line) in enumerate(points.items())]
    lines = figures.finite(lines)
    label = f"{title}: " + ", ".join(f"{line.name} {max(y for _, y in line.points):.1f}" for line in lines)
    if not lines:
        return []
    return [{"title": title, "drawing": figures.line_chart(label, lines, x_label=x_label, y_label=y_label)}]


def curves(histories: Mapping[str, Sequence[tuple[float, float]]], title: str, metric: str = "map_at_r") -> list[Chart]:
    """One chart of a validation metric over steps; points are (step, fraction)."""
    percent = {name: [(x, 100 * y) for x, y in points] for name, points in histories.items()}
    return chart(title, percent, "steps", f"validation {title_of(metric)}, %")


def sweeps(runs: Mapping[str, Run], settings: Mapping[str, Any], metrics: Mapping[str, Any], form: str) -> list[Chart]:
    """A chart of MAP@R over each value of a pooling that three runs or more share all else with (Figs. 7 and 10)."""
    families: dict[tuple[Any, ...], dict[str, list[tuple[float, float]]]] = {}
    for name, run in runs.items():
        values = settings[name]["values"]
        for varied, value in values.items():
            rest = ", ".join(f"{key} {other:g}" for key, other in values.items() if key != varied)
            score = 100 * metrics[name][form]["map_at_r"]["mean"]
            family = families.setdefault((varied, run.loss, run.pooling, run.zero_shot), {})
            family.setdefault(rest, []).append((float(value), score))
    charts = []
    for (varied, loss, pooling, share), family in families.items():
        points = {rest: sorted(line) for rest, line in family.items() if len(line) >= 3}
        title = f"{pooling} with {loss}, zero-shot share {share:g}: MAP@R over {varied}"
        charts += chart(title, points, varied, "MAP@R, %")
    return charts


def spreads(transfer: Mapping[str, Any]) -> list[Chart]:
    """A chart for distance and for cosine: in how many splits the predictions had which MAP (Fig. 5)."""
    charts = []
    for measure in ("distance", "cosine"):
        points = {
            run: [(100 * float(x), 100 * y) for x, y in row[f"spread_by_{measure}"].items()]
            for run, row in transfer.items()
        }
        charts += chart(f"MAP of unmet classes by {measure}", points, f"MAP by {measure}, %", "splits, %")
    return charts


def histograms(transfer: Mapping[str, Any]) -> list[Chart]:
    """A heat map for each run: its prototypes' shares in each class, against an even share (Fig. 5).

    Of more than PROTOTYPES those that differ most between classes.
    """
    charts = []
    for run, row in transfer.items():
        names, shares = list(row["attributes"]), np.array(list(row["attributes"].values()))
        even = 1 / shares.shape[1]
        shown = np.sort(np.argsort(-np.ptp(shares, axis=0), kind="stable")[:PROTOTYPES])
        limit = max(float(np.abs(shares - even).max()), 0.25 * even)
        label, rows, numbers = f"Prototypes of {run} in each class", [name[:8] for name in names], map(str, shown + 1)
        values = shares[:, shown].tolist()
        drawn = figures.heat_map(label, rows, [*numbers], values, centre=even, limit=limit, unit="prototype")
        charts.append({"title": run, "drawing": drawn})
    return charts


def pictures(
    tensors: Mapping[str, np.ndarray], runs: Sequence[str], classes: Sequence[str], size: int
) -> dict[str, Any] | None:
    """A row per image: the image, then for each run shaded by weight, and tinted by prototype where it has any.

    A run without weights of places, such as a mean or a maximum, is left out.
    """
    if not classes:
        return None
    images = tensors["pixels"]
    columns, shown = ["class", "image"], list[Iterable[np.ndarray]]([images])
    for run in runs:
        weights, nearest = tensors[f"weights/{run}"], tensors.get(f"nearest/{run}")
        if not np.ptp(weights):
            continue
        columns.append(f"{run}: {100 * looks.share_of_best_quarter(weights):.0f} %")
        shown.append(map(looks.shade, images, weights))
        if nearest is not None:
            columns.append("its prototypes")
            shown.append(map(looks.tint, images, weights, nearest))
    rows = [
        {"name": name, "pictures": [pictured(pixels, size) for pixels in pictures]}
        for name, pictures in zip(classes, zip(*shown, strict=True), strict=True)
    ]
    note = (
        "Left the image; then, for each run, every place as bright as its weight, and in the colour of its nearest "
        "prototype. The percentage is the weight that lies on the quarter of the places with most weight: 25 % for a "
        "plain mean. Poolings that weigh no places, such as a mean or a maximum, are not shown."
    )
    return {"columns": columns, "rows": rows, "note": note}


def gains(metrics: Mapping[str, Any], pairs: Sequence[tuple[str, str]], form: str) -> list[Chart]:
    """A sentence for each (run, base): MAP@R of both, the change in percent (Fig. 6) and in points."""
    sentences = []
    for run, base in pairs:
        after, before = (100 * metrics[name][form]["map_at_r"]["mean"] for name in (run, base))
        if math.isfinite(after - before):
            relative = f"{100 * (after / before - 1):+.1f} %" if before else "new"
            text = f"{run} against {base}: MAP@R {after:.2f} % and {before:.2f} %, {relative} or"
            sentences.append({"text": text, "gain": round(after - before, 2)})
    return sentences
