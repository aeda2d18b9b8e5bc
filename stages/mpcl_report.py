"""One pretraining run on a page that opens offline: what its heads did, what it gained, and the paper's tables.

Reads   mpcl_encoder/<every run>/history.csv, mpcl_probe/<every run>/metrics.json; the published tables (a CSV)
Writes  index.html, table.md   this run's measures before and after; the untrained start and all runs, a row each
        metrics.json           {start | trained: {task or "mean": {measure: value}}}, in percent where fractions
"""

import csv
from pathlib import Path

from pydantic import Field

from stages.core.mpcl.report import charts
from stages.core.report import page
from stages.core.runner import command, outputs, schema
from stages.core.runner.lists import Lists, Pretraining
from stages.core.store.reading import read_json
from stages.core.training.history import read_history

PUBLISHED = Path(__file__).parent / "core" / "mpcl" / "report" / "mpcl_published.csv"
PLAIN = ("alignment", "uniformity", "effective_rank", "images")
TITLES = {
    "r_precision": "R-Precision, zero-shot",
    "knn": "k-NN accuracy",
    "linear": "linear probe accuracy",
    "alignment": "alignment (lower is closer)",
    "uniformity": "uniformity (lower is more even)",
    "effective_rank": "effective rank (axes that vary)",
}
# What is measured here of the columns of the published tables.
COLUMNS = {
    "linear top-1": lambda measures: measures.get("linear"),
    "1 %, top-1": lambda measures: measures.get("fine_0.01"),
    "10 %, top-1": lambda measures: measures.get("fine_0.1"),
    "1 - alignment": lambda measures: 1 - measures["alignment"] if "alignment" in measures else None,
    "-uniformity": lambda measures: -measures["uniformity"] if "uniformity" in measures else None,
}


class Params(schema.Section):
    published: bool = Field(description="show the paper's tables beside these runs")


Measures = dict[str, dict[str, dict[str, float | int]]]
"""{start | trained: {task or "mean": {measure: value}}}"""


def read_probe(folder: Path) -> Measures:
    """The measures of one run, in percent where they are fractions, with their mean over tasks."""
    found: Measures = {}
    for part, tasks in read_json(folder / "metrics.json").items():
        found[part] = {
            task: {name: value if name in PLAIN else 100 * value for name, value in values.items()}
            for task, values in tasks.items()
        }
        names = [name for name in next(iter(tasks.values()), {}) if name != "images"]
        if names:
            found[part]["mean"] = {name: sum(found[part][task][name] for task in tasks) / len(tasks) for name in names}
    return found


def title_of(measure: str) -> str:
    """A measure in words; `fine_0.1` is fine-tuning with 10 % of the labels."""
    if measure.startswith("fine_"):
        return f"fine-tuned with {100 * float(measure.removeprefix('fine_')):g} % of the labels"
    return TITLES[measure]


def matches(row: dict[str, str], run: Pretraining) -> bool:
    """Whether a published row is of the same kind as a run: framework, heads, reading, variant, PCR, PTB."""
    kind = {"contrast": "yes" if run.contrast and run.heads > 1 else "no"}
    kind |= {"framework": run.framework, "heads": str(run.heads), "variant": run.variant}
    kind["balance"] = "no" if run.balance == "none" or run.heads == 1 else "yes"
    asked = row["heads"] != "" and all(row[key] == value for key, value in kind.items())
    return asked and row["reading"] in ("", run.projectors)


def read_published(runs: dict[str, Pretraining], probes: dict[str, Measures]) -> list[dict]:
    """The paper's tables, each row with what the first run of its kind has in the same columns (mean over tasks)."""
    tables: dict[str, dict] = {}
    with PUBLISHED.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            table = tables.setdefault(
                row["table"], {"name": row["table"], "data": row["data"], "columns": [], "rows": {}}
            )
            if row["column"] not in table["columns"]:
                table["columns"].append(row["column"])
            entry = table["rows"].setdefault(row["row"], {"values": {}, "run": None, "ours": {}})
            entry["values"][row["column"]] = row["value"]
            run = next((name for name, run in runs.items() if matches(row, run)), None)
            if run is not None and row["column"] in COLUMNS:
                entry["run"] = run
                entry["ours"][row["column"]] = COLUMNS[row["column"]](probes[run]["trained"].get("mean", {}))
    return list(tables.values())


def gather_starts(found: dict[str, Measures]) -> dict[str, dict[str, float | int]]:
    """{name: mean measures} of the untrained encoders: one row where all runs set out from the same, else one a run."""
    starts = {name: measures["start"].get("mean", {}) for name, measures in found.items()}
    first = next(iter(starts.values()))
    if all(start == first for start in starts.values()):
        return {"start": first}
    return {f"start of {name}": start for name, start in starts.items()}


def main(encoders: Path, probes: Path, output: Path, *, run: str, params: Params, lists: Lists) -> str:
    found = {name: read_probe(probes / name) for name in lists.mpcl}
    history, own = read_history(encoders / run), found[run]
    tasks = [task for task in own["trained"] if task != "mean"]
    measured = own["trained"].get("mean", {})
    measures = {name: title_of(name) for name in measured if name in TITLES or name.startswith("fine_")}
    content = {
        "run": run,
        "runs": lists.mpcl,
        "kind": lists.mpcl[run],
        "history": history,
        "own": own,
        "found": found,
        "starts": gather_starts(found),
        "tasks": tasks,
        "measures": measures,
        "plain": PLAIN,
        "charts": charts.charts(history, lists.mpcl[run].heads),
        "tables": read_published(lists.mpcl, found) if params.published else [],
    }
    with outputs.folder(output) as folder:
        page.write(folder, "mpcl/report/mpcl", content, own)
    return f"{len(lists.mpcl)} runs on {len(tasks)} tasks, {len(content['tables'])} published tables"


if __name__ == "__main__":
    command.run(main, Params)
