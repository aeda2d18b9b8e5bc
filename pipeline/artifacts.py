"""What a run leaves to look at: its stages as a table, and the tables and charts of the reports it made."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from pipeline.execution import Outcome
from pipeline.graph import Stage

MOST_PICTURES = 12
MOST_BYTES = 200_000
"""Artifacts live in the server's database: a picture larger than this stays in its report."""


class Picture(NamedTuple):
    caption: str
    address: str
    """A data: address, so that it shows without a network and without a file server."""


def stage_rows(stages: list[Stage], outcomes: dict[str, Outcome]) -> list[dict[str, str | float]]:
    """A row per stage in the graph's order: what became of it and how long it took."""
    rows: list[dict[str, str | float]] = []
    for stage in stages:
        outcome = outcomes.get(stage.name)
        result = outcome.result if outcome else "up to date"
        rows.append({"stage": stage.name, "result": result, "seconds": round(outcome.seconds, 1) if outcome else 0.0})
    return rows


def slug(name: str) -> str:
    """The name in the characters that Prefect allows in an artifact's key."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def reports(stages: list[Stage]) -> list[Path]:
    """The output folders that hold a page with its table: any stage may report, none is known by name."""
    return [out for stage in stages for out in stage.outs if (out / "table.md").exists()]


def charts(report: Path) -> str:
    """A report's first charts with their captions, as markdown that shows offline; empty where it has none."""
    page = report / "index.html"
    drawn = pictures(page.read_text(encoding="utf-8")) if page.exists() else []
    return "\n\n".join(f"**{picture.caption}**\n\n![{picture.caption}]({picture.address})" for picture in drawn)


class Figures(HTMLParser):
    """Collects, from each <figure> that holds one picture, its caption and that picture."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Picture] = []
        self._page, self._lines = page, page.splitlines(keepends=True)
        self._caption: list[str] | None = None
        self._style = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
        self._reset()
        self.feed(page)

    def _reset(self) -> None:
        self._words, self._drawn, self._start = "", [], -1

    def position(self) -> int:
        line, column = self.getpos()
        return sum(map(len, self._lines[: line - 1])) + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "figure":
            self._reset()
        elif tag == "figcaption":
            self._caption = []
        elif tag == "svg":
            self._start = self.position()
        elif tag == "img" and (source := dict(attrs).get("src") or "").startswith("data:image/"):
            self._drawn.append(source)

    def handle_data(self, data: str) -> None:
        if self._caption is not None:
            self._caption.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "figcaption" and self._caption is not None:
            self._words, self._caption = " ".join("".join(self._caption).split()), None
        elif tag == "svg" and self._start >= 0:
            self._drawn.append(standalone(self._page[self._start : self.position()] + "</svg>", self._style))
            self._start = -1
        elif tag == "figure":
            if len(self._drawn) == 1 and len(self._drawn[0]) <= MOST_BYTES:
                self.found.append(Picture(self._words, self._drawn[0]))
            self._reset()


def standalone(svg: str, style: str) -> str:
    """The drawing as a file of its own, with the style of the page it stood on, as a data: address."""
    opening, rest = svg.split(">", 1)
    if "xmlns" not in opening:
        opening += ' xmlns="http://www.w3.org/2000/svg"'
    content = f"{opening}><style>{style}</style>{rest}"
    return "data:image/svg+xml;base64," + base64.b64encode(content.encode()).decode()


def pictures(page: str) -> list[Picture]:
    """The first pictures of a report page, each with its caption."""
    return Figures(page).found[:MOST_PICTURES]
