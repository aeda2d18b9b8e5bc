"""One pretraining run on a page that opens offline: its gains, and the paper's tables.

Reads   mpcl_probe/<every run>/metrics.json; the published tables (a CSV)
Writes  index.html, table.md   this run's measures before and after; the untrained start and all runs, a row each
        metrics.json           {start | trained: {task or "mean": {measure: value}}}, in percent where fractions
"""

from pathlib import Path

from polygrain.config.items.mpcl import Pretraining
from polygrain.config.lists import Lists
from polygrain.mpcl.report.published import Network, Setting, matches, published_rows
from polygrain.report import page
from polygrain.runner import command, outputs
from polygrain.store.reading import read_json

PLAIN = ("alignment", "uniformity", "effective_rank", "images")
TITLES = {
    "r_precision": "R-Precision, zero-shot",
    "linear": "linear probe accuracy",
    "alignment": "alignment (lower is closer)",
    "uniformity": "uniformity (lower is more even)",
    "effective_rank": "effective rank (axes that vary)",
}
# The columns of the published tables that are measured here.
MEASURED = {
    "linear top-1": lambda measures: measures.get("linear"),
    "1 %, top-1": lambda measures: measures.get("fine_0.01"),
    "1 %, top-5": lambda measures: measures.get("fine_0.01_top5"),
    "10 %, top-1": lambda measures: measures.get("fine_0.1"),
    "10 %, top-5": lambda measures: measures.get("fine_0.1_top5"),
    "1 - alignment": lambda measures: 1 - measures["alignment"] if "alignment" in measures else None,
    "-uniformity": lambda measures: -measures["uniformity"] if "uniformity" in measures else None,
}


Measures = dict[str, dict[str, dict[str, float | int]]]
"""{start | trained: {task or "mean": {measure: value}}}"""


def read_probe(folder: Path) -> Measures:
    """The measures of one run, in percent where they are fractions, with their mean over tasks."""
    probe: Measures = {}
    for part, tasks in read_json(folder / "metrics.json").items():
        probe[part] = {
            task: {name: value if name in PLAIN else 100 * value for name, value in values.items()}
            for task, values in tasks.items()
        }
        first = next(iter(tasks.values()), {})
        if names := [name for name in first if name != "images" and all(name in values for values in tasks.values())]:
            probe[part]["mean"] = {name: sum(probe[part][task][name] for task in tasks) / len(tasks) for name in names}
    return probe


def title_of(measure: str) -> str:
    """A measure in words; `fine_0.1` is fine-tuning with 10 % of the labels, `fine_0.1_top5` its top-5 accuracy."""
    if measure.startswith("fine_"):
        _, share, *top = measure.split("_")
        return f"fine-tuned with {100 * float(share):g} % of the labels" + (", top-5" if top else "")
    return TITLES[measure]


def read_published(runs: dict[str, Pretraining], probes: dict[str, Measures], setting: Setting) -> list[dict]:
    """The paper's tables, each row with the same columns of its run here, if there is one."""
    tables: dict[str, dict] = {}
    for row in published_rows():
        table = tables.setdefault(row["table"], {"name": row["table"], "data": row["data"], "columns": [], "rows": {}})
        if row["column"] not in table["columns"]:
            table["columns"].append(row["column"])
        entry = table["rows"].setdefault(row["row"], {"values": {}, "run": None, "ours": {}})
        entry["values"][row["column"]] = row["value"]
        run = next((name for name, run in runs.items() if matches(row, run, setting)), None)
        if run is not None and row["column"] in MEASURED:
            entry["run"] = run
            entry["ours"][row["column"]] = MEASURED[row["column"]](probes[run]["trained"].get("mean", {}))
    return list(tables.values())


def gather_starts(probes: dict[str, Measures]) -> dict[str, dict[str, float | int]]:
    """The mean measures of the untrained encoders, by name: one where all runs have the same start, else one a run."""
    starts = {name: probe["start"].get("mean", {}) for name, probe in probes.items()}
    first = next(iter(starts.values()))
    if all(start == first for start in starts.values()):
        return {"start": first}
    return {f"start of {name}": start for name, start in starts.items()}


def main(probes: Path, output: Path, *, run: str, lists: Lists, network: Network, epochs: int, batch: int) -> str:
    measured = {name: read_probe(probes / name) for name in lists.mpcl}
    own = measured[run]
    setting = Setting(list(lists.tasks), network["architecture"], epochs, batch)
    names = [name for name in own["trained"].get("mean", {}) if name in TITLES or name.startswith("fine_")]
    content = {
        "run": run,
        "runs": lists.mpcl,
        "kind": lists.mpcl[run],
        "epochs": epochs,
        "own": own,
        "found": measured,
        "starts": gather_starts(measured),
        "tasks": [task for task in own["trained"] if task != "mean"],
        "measures": {name: title_of(name) for name in names},
        "plain": PLAIN,
        "tables": read_published(lists.mpcl, measured, setting),
    }
    with outputs.folder(output) as folder:
        page.write(folder, "mpcl/report/mpcl", content, own)
    return f"{len(lists.mpcl)} runs on {len(content['tasks'])} tasks, {len(content['tables'])} published tables"


if __name__ == "__main__":
    command.run(main, None, network="mpcl_encoder.network", epochs="mpcl_encoder.epochs", batch="mpcl_encoder.batch")
