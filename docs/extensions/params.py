"""The reference of params.yaml as a directive: the tables of `sections`, a section of the page each."""

import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from docs.extensions.sections import ROOT, Row, Table, tables


def sentence(text: str) -> str:
    """The text with a capital at its beginning, but for names and code."""
    return text[0].upper() + text[1:] if re.match(r"(?:a|[a-z]{2,})(?![\w:])", text) else text


def default(row: Row, places: list[str]) -> str:
    """The value in the root's params.yaml; where it differs between places, each with the places that have it."""
    groups: dict[str, list[str]] = {}
    for place, value in row.values.items():
        shown = json.dumps(value, ensure_ascii=False).replace('"', "")
        owner = next((name for name in places if place.startswith(f"{name}.")), place)
        groups.setdefault(shown, []).append(owner)
    if len(groups) <= 1:
        return "".join(f"`{shown}`" for shown in groups)
    most = max(groups, key=lambda shown: len(groups[shown]))
    lines = [f"`{shown}` for " + ", ".join(f"`{place}`" for place in owners) for shown, owners in groups.items()]
    if len(groups[most]) > 2:
        lines = [line for line, shown in zip(lines, groups, strict=True) if shown != most]
        lines.append(f"else `{most}`")
    return "; ".join(lines)


def cell(text: str) -> str:
    return re.sub(r"([|*<])", r"\\\1", text).replace("\n", " ").strip()


def markdown(table: Table) -> str:
    lines = [f"(params-{table.title.lower()})=", f"## {table.title}", "", table.text, ""]
    if table.places:
        lines += ["Held by " + ", ".join(f"`{place}`" for place in table.places) + ".", ""]
    lines += ["| key | default | what it is |", "|---|---|---|"]
    for row in table.rows:
        met = re.fullmatch(r"\{(\w+)\}", row.kind)
        type_ = f"the keys of [{met[1]}](#params-{met[1].lower()})" if met else cell(row.kind)
        meaning = ". ".join(sentence(part) for part in (type_, cell(row.text)) if part)
        lines.append(f"| `{row.key}` | {default(row, table.places)} | {meaning} |")
    return "\n".join([*lines, ""])


class ParamsReference(SphinxDirective):
    """All tables, as sections of the page that asks for them."""

    def run(self) -> list[nodes.Node]:
        sections, shared = tables()
        for file in [
            ROOT / "params.yaml",
            ROOT / "dvc.yaml",
            *Path(__file__).parent.glob("*.py"),
            *(ROOT / "stages").rglob("*.py"),
        ]:
            self.env.note_dependency(str(file))
        text = "\n".join(map(markdown, [*sections, *shared]))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("params-reference", ParamsReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
