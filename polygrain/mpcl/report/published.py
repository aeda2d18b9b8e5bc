"""MPCL's printed numbers, and whether a run here is the one of a printed row."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polygrain.config.items.mpcl import Pretraining
from polygrain.store.tables import read_csv

Network = dict[str, Any]  # the section of mpcl_encoder, which has checked it
PUBLISHED = Path(__file__).with_name("mpcl_published.csv")


@dataclass(frozen=True)
class Setting:
    """The setting of all runs of a graph, as far as a published row depends on it."""

    tasks: list[str]
    architecture: str
    epochs: int
    batch: int


def published_rows() -> list[dict[str, str]]:
    """The printed numbers, one a row, with the settings of its run, which may be empty."""
    return read_csv(PUBLISHED)


def matches(row: dict[str, str], run: Pretraining, setting: Setting) -> bool:
    """Whether a published row is of this very run: data, network, epochs, batch, and all values of the run."""
    kinds = {name: getattr(run, name) for name in ("framework", "projectors", "variant", "balance")}
    kinds |= {"architecture": setting.architecture}
    if any(row[name] != value for name, value in kinds.items()) or setting.tasks != [row["task"]]:
        return False
    numbers = {"heads": run.heads, "contrast": run.contrast, "epochs": setting.epochs, "batch": setting.batch}
    return all(float(row[name]) == value for name, value in numbers.items())
