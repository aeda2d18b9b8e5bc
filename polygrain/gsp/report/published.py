"""The numbers that the paper prints (gsp_published.csv), each beside the run of the same kind.

The key of a number is its table, images, protocol, loss, pooling with its values, share of the zero-shot loss,
dimensions, metric and statistic (`mean` over all choices of folds, or `best` of three repeats). A run's network may
differ from the paper's; the page names both. `deviation` is printed in Table 2 alone. `open` says why no run can have
the number, and `note` what is odd about it.
"""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from polygrain.config.items.gsp import Run
from polygrain.config.schema import Section
from polygrain.gsp.report.contents import title_of
from polygrain.store.tables import read_csv

FILE = Path(__file__).with_name("gsp_published.csv")
NETWORKS = {
    "bn_inception": "BN-Inception",
    "resnet50": "ResNet-50",
    "resnet20": "ResNet-20",
    "resnet50v2": "ResNet50V2",
    "efficientnetv2_b3": "EfficientNetV2-B3",
}
Row = dict[str, str]


class Claim(Section):
    """The printed rows that a page compares with."""

    tables: list[Annotated[int, Field(ge=1, le=7)]] = Field(
        min_length=1,
        max_length=7,
        description="tables of the paper; their rows on these images, with a loss of the page, stand beside ours",
    )
    network: Literal[tuple(NETWORKS)] = Field(  # type: ignore[valid-type]
        description="the paper's network in those rows"
    )


def read() -> list[Row]:
    return read_csv(FILE)


def claimed(claim: Claim, images: str, losses: Collection[str]) -> list[Row]:
    """The printed rows of these losses that the claim covers, without open ones."""
    return [
        row
        for row in read()
        if int(row["table"]) in claim.tables
        and (row["images"], row["network"]) == (images, claim.network)
        and row["loss"] in losses
        and not row["open"]
    ]


def form_of(row: Row, setting: Mapping[str, Any]) -> str | None:
    """The form of a run that has the row's dimensions: all folds side by side, one fold, or none."""
    sizes = {setting["embedding"] * setting["folds"]: "concat", setting["embedding"]: "separate"}
    return sizes.get(int(row["dim"]))


def is_of(row: Row, run: Run, setting: Mapping[str, Any]) -> bool:
    """Whether a run, trained in this setting (`gsp_folds.setting_of`), measures the row's number."""
    values = dict(value.split("=") for value in row["values"].split())
    return (
        (run.loss, run.pooling, setting["protocol"]) == (row["loss"], row["pooling"], row["protocol"])
        and run.zero_shot == float(row["zero_shot"])
        and all(setting["values"].get(name) == float(value) for name, value in values.items())
        and form_of(row, setting) is not None
    )


def compare(
    rows: list[Row], runs: Mapping[str, Run], settings: Mapping[str, Any], metrics: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A line per printed row, in percent, with its run; NaN without a run of its kind or without its metric.

    `within` is whether ours is within one printed standard deviation, empty where there is none.
    """
    lines = []
    for row in rows:
        run = next((name for name in runs if is_of(row, runs[name], settings[name])), None)
        measured = {} if run is None else metrics[run][form_of(row, settings[run])].get(row["metric"], {})
        ours, percent = 100 * measured.get(row["statistic"], math.nan), float(row["percent"])
        deviation = float(row["deviation"] or "nan")
        line: dict[str, Any] = {key: row[key] for key in ("table", "protocol", "dim", "statistic", "note")}
        line |= {"run": run, "metric": title_of(row["metric"]), "network": NETWORKS[row["network"]]}
        within = "" if math.isnan(ours + deviation) else ("yes" if abs(ours - percent) <= deviation else "no")
        lines.append(line | {"percent": percent, "deviation": deviation, "ours": ours, "within": within})
    return lines


def about_networks(claim: Claim | None, settings: Mapping[str, Any]) -> str:
    """A sentence that names our network and the paper's."""
    ours = ", ".join(sorted({setting["network"] for setting in settings.values()}))
    if claim is None:
        return f"Network: {ours}."
    theirs = NETWORKS[claim.network]
    return f"Network: {ours}; the paper's is {theirs}."
