"""Formats of numbers and names in reports: one decimal, a sign that is always shown, every name escaped."""

import json
import math
from pathlib import Path
from typing import Any

import jinja2

LIBRARY = Path(__file__).parents[1]


def render(template: str, content: dict[str, Any]) -> str:
    """The filled template, by its path below polygrain; a value it asks for and does not get is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(LIBRARY),
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
    return made.get_template(template).render(content)


def write(folder: Path, templates: str, content: dict[str, Any], metrics: dict[str, Any]) -> None:
    """index.html and table.md from the two templates of this name (`gsp/report/gsp`, say), and metrics.json."""
    (folder / "index.html").write_text(render(f"{templates}.html.j2", content), encoding="utf-8")
    (folder / "table.md").write_text(render(f"{templates}.md.j2", content), encoding="utf-8")
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
