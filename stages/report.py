"""The report: one HTML page that opens offline, and the same numbers for `dvc metrics` and `dvc plots`.

Reads   images/<task>/{pixels.zarr, table.parquet, rejected.csv}, pseudo_labels/<k>/labels.zarr, history.csv of every
        adaptor and fusion, evaluation/<model>/{metrics.json, whitened.json,
        queries.parquet, ranked.parquet, attention.parquet; collection.json, smoothed.json, and the
        queries and ranked lists of both},
        choice/{choice.json, criterion.csv, neighbours.parquet}; exactly the items that params.yaml lists.
Writes  index.html    everything, self-contained
        table.md      the results table
        metrics.json  {model: {task or "mean": {r_precision, map_at_r, recall_at_1}}} in percent, and
                      <model>_whitened
        curves.csv    task,model,k,item,r_precision,map_at_r,recall_at_1,r_precision_whitened, a row per task and model
        training.csv  stage,epoch,loss,accuracy,criterion,turnover
        runs/         <model>.parquet and images.parquet, the ranked lists for programs of others (findings/runs.py)
        headline.json the few numbers that a commit is judged by, for `dvc metrics`: means over the tasks, in percent
"""

import json
from pathlib import Path

from polygrain.config.lists import Lists
from polygrain.findings import headline, outcome, report, runs
from polygrain.findings.outcome import Params, Places
from polygrain.findings.sections import curves, training
from polygrain.runner import command, outputs
from polygrain.store.image_table import read_table
from polygrain.store.tables import write_csv


def main(
    images: Path,
    pseudo_labels: Path,
    adaptor: Path,
    fusion: Path,
    evaluation: Path,
    choice: Path,
    output: Path,
    *,
    params: Params,
    lists: Lists,
) -> str:
    found = outcome.read(Places(images, pseudo_labels, adaptor, fusion, evaluation, choice), params, lists)
    table = found.leading if found.leads else found.measured
    known = headline.numbers(table, found.choice, found.searched.table, found.advice)
    with outputs.folder(output) as folder:
        report.write(folder, found)
        (folder / "headline.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        runs.write(evaluation, lists.models, {name: read_table(images / name) for name in lists.tasks}, folder / "runs")
        write_csv(folder / "curves.csv", curves.rows(found.measured, found.ks))
        write_csv(folder / "training.csv", training.rows(found.histories))
    size = (output / "index.html").stat().st_size
    words = headline.spoken(known) or "nothing was measured"
    return f"{words}; index.html {size / 2**20:.1f} MiB"


if __name__ == "__main__":
    command.run(main, Params)
