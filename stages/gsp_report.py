"""The page of one folder of images: what every run on it is worth, how it trained, and where its pooling looks.

Reads   gsp_ensemble/<name>
Writes  index.html     everything, self-contained
        table.md       the results table
        metrics.json   {run: {form: {metric: percent}}}
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from stages.core.gsp.report import contents
from stages.core.report import page
from stages.core.report.visible import visible
from stages.core.runner import command, outputs, schema
from stages.core.runner.lists import Lists, Run
from stages.core.store.reading import read_json
from stages.core.store.tables import read_csv
from stages.core.store.tensors import read_tensors

NOTE = (
    "In percent on images of unseen classes, mean ± standard deviation: of one fold over folds and repeats, of "
    "averaged folds and folds side by side over all choices of one repeat per fold. Best of a column in bold."
)
FORMS = (("single", "one fold"), ("mean", "folds averaged"), ("concat", "folds side by side"))


Metric = Annotated[str, StringConstraints(pattern=r"^(map_at_r|r_precision|recall_at_[1-9][0-9]{0,5})$")]


class Params(schema.Section):
    thumbnail: int = Field(ge=16, le=512, description="largest side of a picture, px")
    metrics: list[Metric] = Field(
        min_length=1, max_length=100, description="shown for each form: map_at_r, r_precision, recall_at_<k>"
    )


def read_curves(file: Path, runs: dict[str, Run]) -> list[dict]:
    """A chart for each loss: validation MAP@R of the first fold of its runs."""
    rows = [row for row in read_csv(file) if (row["fold"], row["repeat"]) == ("0", "0")]
    charts = []
    for loss in dict.fromkeys(spec.loss for spec in runs.values()):
        histories = {
            run: [(float(row["step"]), float(row["map_at_r"])) for row in rows if row["run"] == run]
            for run, spec in runs.items()
            if spec.loss == loss
        }
        charts += contents.curves(histories, f"First fold, {loss}")
    return charts


def pairs(runs: dict[str, Run]) -> list[tuple[str, str]]:
    """Every run beside the plain mean with the same loss."""
    means = {spec.loss: run for run, spec in runs.items() if spec.pooling == "gap" and not spec.zero_shot}
    return [(run, means[spec.loss]) for run, spec in runs.items() if spec.loss in means and means[spec.loss] != run]


def main(ensemble: Path, output: Path, *, name: str, params: Params, lists: Lists) -> str:
    runs = {run: spec for run, spec in lists.gsp_runs.items() if spec.images == lists.gsp[name]}
    metrics = read_json(ensemble / "metrics.json")
    known = sorted(next(iter(metrics.values()))["single"])
    if unknown := set(params.metrics) - set(known):
        raise ValueError(f"gsp_report.metrics names {min(unknown)!r}; known: {', '.join(known)}")
    shown = [
        (form, metric, f"{contents.title_of(metric)}, {title}") for metric in params.metrics for form, title in FORMS
    ]
    columns, rows = contents.table(metrics, shown)
    tensors = {name: tensor.numpy() for name, tensor in read_tensors(ensemble / "pictures.safetensors").items()}
    classes = [visible(name) for name in read_json(ensemble / "pictures.json")["classes"]]
    attributes = {run: tensors[f"attributes/{run}"] for run in runs if f"attributes/{run}" in tensors}
    content = {
        "title": name,
        "heading": f"{len(runs)} runs on {name}",
        "sentences": contents.gains(metrics, pairs(runs), "mean"),
        "columns": columns,
        "rows": rows,
        "note": NOTE,
        "published": contents.published(
            Path(lists.gsp[name]).name, {run: (spec.loss, spec.pooling) for run, spec in runs.items()}, metrics
        ),
        "charts": read_curves(ensemble / "history.csv", runs),
        "transfer": read_json(ensemble / "transfer.json"),
        "looks": contents.pictures(tensors, list(runs), classes, params.thumbnail),
        "attributes": contents.attribute_maps(attributes, classes),
    }
    percent = {
        run: {
            form: {metric: round(100 * v["mean"], 4) for metric, v in values.items()} for form, values in forms.items()
        }
        for run, forms in metrics.items()
    }
    with outputs.folder(output) as folder:
        page.write(folder, "gsp/report/gsp", content, percent)
    return f"{len(runs)} runs, index.html {(output / 'index.html').stat().st_size / 2**20:.1f} MiB"


if __name__ == "__main__":
    command.run(main, Params)
