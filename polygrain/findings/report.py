"""The page of the report, and its table in Markdown: the sections in order.

A section has a function `content`, and templates of its module's name beside it: HTML, and Markdown if it is a table.
It is left out where its HTML is empty.
"""

from pathlib import Path

from markupsafe import Markup

from polygrain.findings import wording
from polygrain.findings.outcome import Content, Outcome
from polygrain.findings.sections import (
    attention,
    branches,
    collection,
    curves,
    images,
    queries,
    results,
    training,
    use,
    vote,
    why,
)
from polygrain.report import page

# Each by its title in the navigation, in that order.
SECTIONS = {
    "What to use": use,
    "Why this model": why,
    "Your images": collection,
    "Results": results,
    "Granularities": curves,
    "Queries": queries,
    "Vote": vote,
    "Attention": attention,
    "Training": training,
    "Images": images,
    "Other branches": branches,
}
FOLDER = Path(__file__).with_name("sections")


def write(folder: Path, found: Outcome) -> None:
    """index.html, table.md and metrics.json; every template has the content of all sections."""
    content: Content = wording.WORDS | {
        "params": found.params,
        "trains": found.trains,
        "leads": found.leads,
        "learns": found.learns,
        "unseen": [name for name, task in found.lists.tasks.items() if task.unseen],
    }
    for section in SECTIONS.values():
        content |= section.content(found)
    sections = {section.__name__.rpartition(".")[2]: title for title, section in SECTIONS.items()}
    parts = {name: Markup(page.render(f"findings/sections/{name}.html.j2", content).strip()) for name in sections}
    titles = {name: title for name, title in sections.items() if f'id="{name}"' in parts[name]}
    tables = [
        page.render(f"findings/sections/{name}.md.j2", content)
        for name in sections
        if (FOLDER / f"{name}.md.j2").exists()
    ]
    content |= {"parts": parts, "titles": titles, "tables": tables}
    page.write(folder, "findings/report", content, found.metrics)
