"""The output of the stage `choice` for the report: the criterion before and after, candidates, granularities.

All shares are in percent, and none needs a label.
"""

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from polygrain.store.reading import read_json, reading, remedy_for

ENCODER = "encoder"
SIDES = ("encoder", "recommended", "difference")
# The first columns of criterion.csv. The tasks follow, and may have any name, even one of these.
COLUMNS = ["name", "model", "scale", "blocks", "layer", "dim", "cost", "criterion", "agreement", "falls", "recommended"]


class Bounded(NamedTuple):
    """A mean over images with its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class CandidateRow:
    """A line of criterion.csv; `tasks` has the criterion of each."""

    name: str
    model: str
    scale: float
    blocks: int
    layer: str
    dim: int | None
    cost: float
    criterion: float
    agreement: float
    falls: str
    is_chosen: bool
    tasks: dict[str, float]


@dataclass(frozen=True)
class Choice:
    """`compared[task or "mean"]` has the criterion of the encoder and the recommended model, and their difference.

    It is empty where no task could tell; `uncertain` are those that could not. The candidates come best first.
    """

    name: str
    why: list[str]
    images: int
    compared: dict[str, dict[str, Bounded]]
    uncertain: list[str]
    candidates: list[CandidateRow]

    @property
    def is_encoder(self) -> bool:
        """Whether the encoder is handed out as it is."""
        return self.name == ENCODER

    @property
    def taken(self) -> CandidateRow | None:
        return next((candidate for candidate in self.candidates if candidate.is_chosen), None)

    def first(self, count: int) -> list[tuple[int, CandidateRow]]:
        """The best with their ranks, and the chosen one and the encoder at any rank."""
        ranked = enumerate(self.candidates, 1)
        return [(rank, one) for rank, one in ranked if rank <= count or one.is_chosen or one.name == ENCODER]


def percent(value: float | str | None) -> float:
    return math.nan if value is None or value == "" else 100 * float(value)


def read(folder: Path) -> Choice:
    """ValueError, with the file, where it is not what the stage writes."""
    file = folder / "choice.json"
    values = read_json(file)
    with reading(file, remedy_for(folder)):
        compared = {
            column: {side: Bounded(*map(percent, sides[side])) for side in SIDES}
            for column, sides in (values["criterion"] or {}).items()
        }
        compared = {column: sides for column, sides in compared.items() if not math.isnan(sides["difference"].value)}
        name, why, images, uncertain = (values[key] for key in ("name", "why", "images", "uncertain"))
    return Choice(name, why, images, compared, uncertain, read_candidates(folder / "criterion.csv"))


def read_candidates(file: Path) -> list[CandidateRow]:
    with reading(file, remedy_for(file.parent)), file.open(newline="", encoding="utf-8") as lines:
        header, *rows = csv.reader(lines)
        if header[: len(COLUMNS)] != COLUMNS:
            raise ValueError(f"its columns are {','.join(header)!r:.200}")
        return [candidate(row, header[len(COLUMNS) :]) for row in rows]


def candidate(row: list[str], tasks: list[str]) -> CandidateRow:
    name, model, scale, blocks, layer, dim, cost, criterion, agreement, falls, is_chosen, *shares = row
    return CandidateRow(
        *(name, model, float(scale), int(blocks), layer, int(dim) if dim else None, float(cost)),
        *(percent(criterion), percent(agreement), falls, is_chosen == "1"),
        {task: percent(share) for task, share in zip(tasks, shares, strict=True)},
    )
