"""The page of one folder of images: scores of its runs, their training, and where their poolings look.

Reads   gsp_ensemble/<name>
Writes  index.html     everything, self-contained
        table.md       the results table
        metrics.json   {run: {form: {metric: percent}}}
"""

from pathlib import Path

from pydantic import Field

from polygrain.config import schema
from polygrain.config.items.gsp import Run
from polygrain.config.lists import Lists
from polygrain.gsp.report import contents, published
from polygrain.gsp.report.published import Claim
from polygrain.report import page
from polygrain.report.visible import visible
from polygrain.runner import command, outputs
from polygrain.store.reading import read_json
from polygrain.store.tables import read_csv
from polygrain.store.tensors import read_tensors

NOTE = (
    "In percent on {images}, mean ± standard deviation over all choices of one repeat per fold. Folds apart: the "
    "average of their metrics, {one}-D here, the paper's 128-D. Folds side by side: {all}-D here, the paper's 512-D. "
    "Best of a column in bold. {network}"
)
IMAGES = {"tuning": "held-out training classes (validation)"}
FORMS = (("separate", "folds apart"), ("concat", "folds side by side"))
METRICS = ("map_at_r", "recall_at_1")
THUMBNAIL = 96  # largest side of a picture, px


class Params(schema.Section):
    published: Claim | None = Field(description="the paper's numbers to stand beside ours; null: none")


def read_curves(file: Path, runs: dict[str, Run], metric: str) -> list[dict]:
    """A chart for each loss: the validation score of the first fold of its runs."""
    rows = [row for row in read_csv(file) if (row["fold"], row["repeat"]) == ("0", "0")]
    charts = []
    for loss in dict.fromkeys(spec.loss for spec in runs.values()):
        histories = {
            run: [(float(row["step"]), float(row[metric])) for row in rows if row["run"] == run]
            for run, spec in runs.items()
            if spec.loss == loss
        }
        charts += contents.curves(histories, f"First fold, {loss}", metric)
    return charts


def describe(settings: dict[str, dict], claim: published.Claim | None) -> str:
    """The note below the table."""
    setting = next(iter(settings.values()))
    one, images = setting["embedding"], IMAGES.get(setting["protocol"], "images of unseen classes")
    network = published.about_networks(claim, settings)
    return NOTE.format(images=images, one=one, all=one * setting["folds"], network=network)


def pairs(runs: dict[str, Run]) -> list[tuple[str, str]]:
    """Every run with the run that has the same loss and a plain mean."""
    means = {spec.loss: run for run, spec in runs.items() if spec.pooling == "gap" and not spec.zero_shot}
    return [(run, means[spec.loss]) for run, spec in runs.items() if spec.loss in means and means[spec.loss] != run]


def main(ensemble: Path, output: Path, *, name: str, params: Params, lists: Lists) -> str:
    runs = {run: spec for run, spec in lists.gsp_runs.items() if spec.images == lists.gsp[name]}
    metrics, settings = read_json(ensemble / "metrics.json"), read_json(ensemble / "settings.json")
    shown = [(form, metric, f"{contents.title_of(metric)}, {title}") for metric in METRICS for form, title in FORMS]
    columns, rows = contents.table(metrics, shown)
    setting = next(iter(settings.values()))
    losses, images = {spec.loss for spec in runs.values()}, Path(lists.gsp[name]).name
    rows_of_paper = published.claimed(params.published, images, losses) if params.published else []
    transfer = read_json(ensemble / "transfer.json")
    tensors = {name: tensor.numpy() for name, tensor in read_tensors(ensemble / "pictures.safetensors").items()}
    classes = [visible(name) for name in read_json(ensemble / "pictures.json")["classes"]]
    content = {
        "title": name,
        "heading": f"{len(runs)} runs on {name}",
        "sentences": contents.gains(metrics, pairs(runs), "separate"),
        "columns": columns,
        "rows": rows,
        "note": describe(settings, params.published),
        "published": published.compare(rows_of_paper, runs, settings, metrics),
        "network": published.about_networks(params.published, settings),
        "charts": read_curves(ensemble / "history.csv", runs, setting["chosen_by"]),
        "sweeps": contents.sweeps(runs, settings, metrics, "separate"),
        "transfer": transfer,
        "histograms": contents.histograms(transfer),
        "spreads": contents.spreads(transfer),
        "looks": contents.pictures(tensors, list(runs), classes, THUMBNAIL),
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
