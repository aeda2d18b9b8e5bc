"""What the stage `choice` wrote, as the report shows it: the criterion before and after, candidates, granularities.

All shares are in percent. Nothing here needs a label, and it stands for tasks without labels, too.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from polygrain.grappa.report import scores
from polygrain.store.reading import read_json, reading, remedy_for

ENCODER = "encoder"
SIDES = ("encoder", "chosen", "difference")
# What a line of criterion.csv begins with; the tasks follow, and may bear any name, even one of these.
COLUMNS = ["name", "model", "strength", "scale", "mirrored", "blocks", "layer", "dim", "cost", "criterion", "agreement"]
COLUMNS += ["falls", "chosen"]


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
    strength: float
    scale: float
    is_mirrored: bool
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
    """`compared[task or "mean"]` has the criterion of the encoder and the chosen model, and their difference.

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
        """The best with their ranks; the chosen one and the encoder as it is wherever they stand."""
        ranked = enumerate(self.candidates, 1)
        return [(rank, one) for rank, one in ranked if rank <= count or one.is_chosen or one.name == ENCODER]


def percent(value: float | str | None) -> float:
    return math.nan if value is None or value == "" else 100 * float(value)


def read(folder: Path) -> Choice:
    """ValueError, with the file, where it is not what the stage writes."""
    values, file = read_json(folder / "choice.json"), folder / "choice.json"
    with reading(file, remedy_for(folder)):
        compared = {
            column: {side: Bounded(*map(percent, sides[side])) for side in SIDES}
            for column, sides in (values["criterion"] or {}).items()
        }
        name, why, images, uncertain = (
            values["name"],
            list(values["why"]),
            int(values["images"]),
            list(values["uncertain"]),
        )
    known = {column: sides for column, sides in compared.items() if not math.isnan(sides["difference"].value)}
    return Choice(name, why, images, known, uncertain, read_candidates(folder / "criterion.csv"))


def read_candidates(file: Path) -> list[CandidateRow]:
    with reading(file, remedy_for(file.parent)), file.open(newline="", encoding="utf-8") as lines:
        header, *rows = csv.reader(lines)
        if header[: len(COLUMNS)] != COLUMNS:
            raise ValueError(f"its columns are {','.join(header)!r:.200}")
        tasks = header[len(COLUMNS) :]
        return [candidate(dict(zip(COLUMNS, row, strict=False)), tasks, row[len(COLUMNS) :]) for row in rows]


def candidate(row: dict[str, str], tasks: Sequence[str], values: Sequence[str]) -> CandidateRow:
    return CandidateRow(
        name=row["name"],
        model=row["model"],
        strength=float(row["strength"]),
        scale=float(row["scale"]),
        is_mirrored=row["mirrored"] == "1",
        blocks=int(row["blocks"]),
        layer=row["layer"],
        dim=int(row["dim"]) if row["dim"] else None,
        cost=float(row["cost"]),
        criterion=percent(row["criterion"]),
        agreement=percent(row["agreement"]),
        falls=row["falls"],
        is_chosen=row["chosen"] == "1",
        tasks={task: percent(value) for task, value in zip(tasks, values, strict=True)},
    )


def common_forms(candidates: Iterable[CandidateRow], models: Sequence[str]) -> dict[str, CandidateRow]:
    """Of each model its best form, all at the one strength at which the most models were compared.

    A finalist was looked at in more forms than the others, which alone would make it look better.
    """
    plain = [one for one in candidates if not one.is_mirrored]
    at = {model: {one.strength for one in plain if one.model == model} for model in models}
    common = set.intersection(*at.values()) if at else set()
    if not common:
        return {}

    def known(strength: float) -> tuple[int, float]:
        return len({one.model for one in plain if one.strength == strength}), strength

    strength = max(common, key=known)
    return {
        model: max(
            (one for one in plain if (one.model, one.strength) == (model, strength)),
            key=lambda one: scores.rank(one.criterion),
        )
        for model in models
    }


def highest(values: dict[str, float]) -> str | None:
    """The name of the largest value, the first of equals; None where none is known."""
    known = [name for name, value in values.items() if not math.isnan(value)]
    return max(known, key=lambda name: values[name], default=None)


def preferences(choice: Choice, granularities: Sequence[str], table: scores.Scores) -> dict | None:
    """Per task the granularity it prefers by the criterion, and by R-Precision where all have one; None without two.

    `unused` are granularities that no task prefers by the criterion.
    """
    measured = [name for name in granularities if any(one.model == name for one in choice.candidates)]
    forms = common_forms(choice.candidates, measured)
    if len(forms) < 2 or not choice.compared:
        return None
    rows = []
    for task in next(iter(forms.values())).tasks:
        by_criterion = {name: form.tasks[task] for name, form in forms.items()}
        by_labels = {name: table.get(name, task) for name in forms}
        is_labelled = not any(math.isnan(value) for value in by_labels.values())
        rows.append(
            {
                "task": task,
                "criterion": by_criterion,
                "preferred": highest(by_criterion),
                "r_precision": by_labels,
                "best": highest(by_labels) if is_labelled else None,
            }
        )
    (strength,) = {form.strength for form in forms.values()}
    preferred = {row["preferred"] for row in rows}
    unused = [name for name in forms if name not in preferred]
    return {"names": list(forms), "rows": rows, "unused": unused, "strength": strength}
