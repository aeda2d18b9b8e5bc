"""docs/faithful/index.md: the state of every table and figure, of docs/faithful/state.csv and the printed numbers.

python -m docs.extensions.state
"""

import csv
from collections import Counter
from pathlib import Path

from docs.extensions.reference import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/faithful/index.md"
STATES = ("run", "runnable", "differs", "missing")
HEAD = """# True to the papers

Every table and figure of the papers. *Run*: computed here, by the command. *Runnable*: the command makes it by the
printed values, once the data are there. *Differs*: the command makes something near it. *Missing*: it is not here.
Nothing has been run at full size: beside a printed number stands none of ours, unless the column says so. Of the
{printed:,} printed numbers that are kept here, {with_run:,} have a run of a profile by the printed values.

What the papers conclude, and whether it holds here: [Which claims hold](claims.md).

What each paper says and what the code does, item by item: [Grappa](grappa.md), [GSP](gsp.md), [MPCL](mpcl.md) and
[TLL](tll.md). Values that profiles take from a paper are compared with the printed ones by `tests/papers/`. Numbers
that the authors' public code computed once stand in `tests/oracles/`.

"""
TAIL = """This page is made by `python -m docs.extensions.state`.

```{toctree}
:hidden:

claims
grappa
gsp
mpcl
tll
```
"""


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
    for row in read("polygrain/tll/extractors/extractors.csv"):
        printed["TLL", "1"] += 9
        with_run["TLL", "1"] += 9 * (row["library"] != "none")
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
    return "".join(lines) + TAIL


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
