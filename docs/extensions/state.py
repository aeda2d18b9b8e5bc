"""`state-of-the-papers`: the state of every table and figure, of docs/faithful/state.csv and the printed numbers."""

import csv
from collections import Counter
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from docs.extensions.reference import table

ROOT = Path(__file__).parents[2]
STATES = ("run", "runnable", "differs", "missing")
HEAD = "Of the {printed:,} printed numbers kept here, {with_run:,} have a run of a profile by the printed values.\n\n"


def read(file: Path | str) -> list[dict[str, str]]:
    with (ROOT / file).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def counts() -> dict[str, Counter]:
    """{"printed" | "with run": {(paper, table): numbers}}. The tests of each table compare its rows with the runs."""
    printed, with_run = Counter(), Counter()
    for row in read("polygrain/grappa/report/grappa.csv"):
        key = ("Grappa", row["table"])
        printed[key] += 2
        with_run[key] += 2
    for row in read("polygrain/gsp/report/gsp_published.csv"):
        numbers = 1 + bool(row["deviation"])
        printed["GSP", row["table"]] += numbers
        with_run["GSP", row["table"]] += 0 if row["open"] else numbers
    printed["TLL", "1"] = with_run["TLL", "1"] = 9 * len(read("polygrain/tll/extractors/extractors.csv"))
    # Table III prints one count of parameters for the two rows of as many heads.
    seen = set()
    for row in read("polygrain/mpcl/report/mpcl_published.csv"):
        if row["column"] == "parameters, M":
            if row["heads"] in seen:
                continue
            seen.add(row["heads"])
        printed["MPCL", row["table"]] += 1
        with_run["MPCL", row["table"]] += bool(row["architecture"])
    return {"printed": printed, "with run": with_run}


def text() -> str:
    numbers, papers = counts(), {}
    for row in read("docs/faithful/state.csv"):
        key = (row["paper"].split(",")[0], row["element"].removeprefix("Table "))
        if row["state"] == "differs":
            numbers["with run"][key] = 0
        printed, with_run = (numbers[name][key] for name in ("printed", "with run"))
        shown = f"{printed}" if printed == with_run else f"{printed}, {with_run} with a run"
        cells = [row["element"], row["what"], shown if printed else "", row["ours"], row["state"]]
        cells += [f"`{row['command']}`" if row["command"] else "", row["note"]]
        papers.setdefault(row["paper"], []).append(cells)
    lines = [HEAD.format(printed=numbers["printed"].total(), with_run=numbers["with run"].total())]
    for paper, rows in papers.items():
        lines += [
            f"## {paper}\n\n",
            "\n".join(table("| | what | numbers | ours | state | command | note |", rows)),
            "\n",
        ]
    return "".join(lines)


class State(SphinxDirective):
    """The table of each paper."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(text(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("state-of-the-papers", State)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
