"""How the report puts numbers and names into words: one decimal, a sign that is always shown, every name escaped."""

import json
import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import jinja2

from stages.core.report import figures, scores

TITLES = {
    "pixels": ("Raw pixels", "no model"),
    "encoder": ("Frozen encoder", "what you start from"),
    "oracle": ("Oracle", "best adaptor per task, chosen with test labels: not comparable"),
    "average": ("Average fusion", "one model, all adaptors alike"),
    "augmentation": ("Augmentation fusion", "one model, attention from pairs of views"),
    "neighbour": ("Neighbour fusion", "one model, attention from pairs of neighbours"),
    "static": ("Static neighbour fusion", "the same with the encoder's own graph throughout"),
    "supervised": ("Supervised fusion", "attention from true labels: not comparable"),
    "one_set": ("One random set", "M+A_1: from pairs of views, no clustering"),
    "many_sets": ("Random sets, fused", "M*(random): trained together from pairs of views"),
    "tldr": ("TLDR-style reduction", "linear, from pairs of neighbours"),
}


HOW = {"full": "all weights", "one": "one adaptor set", "many": "fused adaptor sets"}


def title_of(model: str) -> tuple[str, str]:
    task, _, how = model.rpartition("-")
    if task and how in HOW:
        return f"Supervised on {task}", f"{HOW[how]}, true labels: not comparable"
    return TITLES.get(model, (f"Adaptor {model}", "one granularity"))


def best_rows(table: scores.Scores, bounds: Collection[str] = ()) -> dict[str, list[str]]:
    """The rows of highest R-Precision of each column as shown; less the oracle and the `bounds`, which saw labels."""
    comparable = [row for row in table.rows if row.removesuffix(scores.WHITENED) not in (scores.ORACLE, *bounds)]
    best = {}
    for column in [scores.MEAN, *table.tasks]:
        shown = {row: round(table.get(row, column), 1) for row in comparable}
        highest = max((value for value in shown.values() if not math.isnan(value)), default=math.nan)
        best[column] = [row for row, value in shown.items() if value == highest]
    return best


def placement(values: Iterable[float]) -> Callable[[float], str]:
    """Where a value stands on a track from 0 to 100 %, so that all the values fit."""
    known = [value for value in values if not math.isnan(value)] or [0.0]
    ends = figures.ticks(min(known), max(known), 4)
    return lambda value: f"{3 + 94 * (0 if math.isnan(value) else value - ends[0]) / (ends[-1] - ends[0]):.2f}"


def render(template: str, content: dict) -> str:
    """The filled template, one of the files beside this one; a value it asks for and does not get is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = lambda value: "–" if value is None or math.isnan(value) else f"{value:.1f}"
    made.filters["number2"] = lambda value: "–" if value is None or math.isnan(value) else f"{value:.2f}"
    made.filters["signed"] = signed
    made.filters["sign"] = lambda value: "none" if math.isnan(value) else ("up", "flat", "down")[1 - trend(value)]
    made.filters["count"] = lambda value: "–" if value is None else f"{value:,}"
    made.filters["signed_count"] = signed_count
    made.globals.update(title_of=title_of, whitened=scores.WHITENED, mean=scores.MEAN, oracle=scores.ORACLE)
    return made.get_template(template).render(content)


def write(folder: Path, html: str, markdown: str, content: dict, metrics: dict) -> None:
    """index.html and table.md from these templates, and metrics.json."""
    (folder / "index.html").write_text(render(html, content), encoding="utf-8")
    (folder / "table.md").write_text(render(markdown, content), encoding="utf-8")
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")


def trend(value: float) -> int:
    """1, 0 or -1: the direction of a difference as it is shown, with one decimal."""
    shown = round(value, 1)
    return (shown > 0) - (shown < 0)


def signed_count(value: int | None) -> str:
    return "–" if value is None else ("−", "±", "+")[1 + trend(float(value))] + f"{abs(value):,}"


def signed(value: float) -> str:
    if math.isnan(value):
        return "–"
    return ("−", "±", "+")[1 + trend(value)] + f"{abs(value):.1f}"
