"""The numbers that the paper prints (gsp_published.csv), each beside the one run that is of the same kind.

A printed number is told apart by its table, images, network, protocol, loss, pooling with its values, share of the
zero-shot loss, dimensions, metric and statistic: `mean` over all choices of folds, or of three repeats the `best`. Of
the network only the page's claim speaks: BN-Inception is in no library here, and ours is named beside it. `open` says
why no run can stand beside a number; `note`, what is odd about it.
"""

import csv
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from polygrain.config.lists import Run
from polygrain.config.schema import Section
from polygrain.gsp.report.contents import title_of

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
    """Which printed rows a page answers for."""

    tables: list[Annotated[int, Field(ge=1, le=7)]] = Field(
        min_length=1,
        max_length=7,
        description="of the paper, whose rows on these images, with a loss of the page, stand beside ours",
    )
    network: Literal[tuple(NETWORKS)] = Field(description="the paper's network in those rows")


def read() -> list[Row]:
    with FILE.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def claimed(claim: Claim, images: str, losses: Collection[str]) -> list[Row]:
    """The printed rows of these losses that this page answers for, without those that no run can meet."""
    return [
        row
        for row in read()
        if int(row["table"]) in claim.tables
        and (row["images"], row["network"]) == (images, claim.network)
        and row["loss"] in losses
        and not row["open"]
    ]


def form_of(row: Row, setting: Mapping) -> str | None:
    """Which form of a run has the row's dimensions: one fold's, all folds' side by side, or none."""
    sizes = {setting["embedding"] * setting["folds"]: "concat", setting["embedding"]: "separate"}
    return sizes.get(int(row["dim"]))


def is_of(row: Row, run: Run, setting: Mapping) -> bool:
    """Whether a run, trained in this setting (`gsp_folds.setting_of`), measures what the row does."""
    values = dict(value.split("=") for value in row["values"].split())
    return (
        (run.loss, run.pooling, setting["protocol"]) == (row["loss"], row["pooling"], row["protocol"])
        and run.zero_shot == float(row["zero_shot"])
        and all(setting["values"].get(name) == float(value) for name, value in values.items())
        and form_of(row, setting) is not None
    )


def compare(
    rows: list[Row], runs: Mapping[str, Run], settings: Mapping[str, Mapping], metrics: Mapping[str, Mapping]
) -> list[dict]:
    """A line per printed row, in percent, with its run; NaN where no run is of its kind or its metric not measured."""
    lines = []
    for row in rows:
        run = next((name for name in runs if is_of(row, runs[name], settings[name])), None)
        ours = math.nan
        if run is not None:
            measured = metrics[run][form_of(row, settings[run])].get(row["metric"], {})
            ours = 100 * measured.get(row["statistic"], math.nan)
        shown = {key: row[key] for key in ("table", "protocol", "dim", "statistic", "note")}
        shown |= {"run": run, "metric": title_of(row["metric"]), "network": NETWORKS[row["network"]]}
        lines.append(shown | {"percent": float(row["percent"]), "ours": ours})
    return lines


def about_networks(claim: Claim | None, settings: Mapping[str, Mapping]) -> str:
    """A sentence on the network that was trained, and whether the paper's is another one."""
    ours = ", ".join(sorted({setting["network"] for setting in settings.values()}))
    if claim is None:
        return f"Network: {ours}."
    theirs = NETWORKS[claim.network]
    is_another = any(setting["network"].split(".")[0] != claim.network for setting in settings.values())
    return f"Network: {ours}; the paper's is {theirs}{', another one' if is_another else ''}."
