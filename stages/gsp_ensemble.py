"""Scores of all runs on one folder of images: each fold alone, folds averaged, and folds side by side.

Reads   the images' folder, gsp_folds/<run>-<fold>-<repeat> of all runs on it
Writes  metrics.json   fractions: {run: {form: {metric: {mean, std, min, max, best}}}}; `best` is of the row best
                       by the metric that chose the state. Forms: `single` over folds and repeats; the others over all
                       choices of one repeat per fold: `separate` averages the folds' metrics (the paper's 128-D),
                       `concat` joins their vectors (its 512-D)
        settings.json  {run: {protocol, chosen_by, network, embedding, folds, values}}
        combinations.csv   run, form, combination (the repeat of each fold), metrics
        history.csv        run, fold, repeat, and the columns of gsp_folds' history
        transfer.json      {run: {distance, cosine, map_by_distance, map_by_cosine, spread_by_distance,
                       spread_by_cosine, attributes}}: how well attributes predict unseen classes; {class: share of
                       each prototype} of at most ten
        pictures.safetensors, pictures.json   images with every run's weights and nearest prototypes
"""

import csv
import json
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from polygrain.compute.counted import counted
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.gsp import collage, ensemble
from polygrain.gsp.folds.images import Images, read_images
from polygrain.retrieval.metrics import score
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.store.reading import read_json
from polygrain.store.tensors import read_tensors, write_tensors

Rows = list[dict[str, str | float]]
Trainings = list[tuple[int, int]]  # fold, repeat
FORMS = ("single", "separate", "concat")
RIDGE = 0.05  # of the predictor that is tried on attributes
THUMBNAIL = 96  # largest side of a picture, px
CLASSES = 10  # whose attributes are shown, as in Fig. 5


class Params(schema.Section):
    recall_at: list[schema.Count] = Field(min_length=1, max_length=100, description="K of the reported Recall@K")
    splits: int = Field(
        ge=0, le=1_000_000, description="random halves of the classes to try the attributes on; 0: none"
    )


def first_of(folds: Path, run: str) -> Path:
    """The first fold's first training."""
    return folds / f"{run}-0-0"


def score_run(folds: Path, run: str, trainings: Trainings, table: Images, recall_at: list[int]) -> Rows:
    """A row per fold and repeat, and one per combination and form."""
    rows = np.array(read_json(first_of(folds, run) / "config.json")["rows"])
    labels, splits = table.labels[rows], table.splits[rows]
    names = [f"{fold}-{repeat}" for fold, repeat in trainings]
    vectors = {name: arrays.open(folds / f"{run}-{name}" / "embeddings.zarr")[:] for name in names}
    alone = {name: score(vectors[name], labels, splits, recall_at) for name in names}
    scored: Rows = [{"run": run, "form": "single", "combination": name} | alone[name] for name in names]
    last_fold, last_repeat = trainings[-1]
    choices = ensemble.combinations(last_fold + 1, last_repeat + 1)
    for choice in progress(choices, f"combinations of {run}", unit="combination"):
        parts = [f"{fold}-{repeat}" for fold, repeat in enumerate(choice)]
        forms = {"separate": ensemble.average([alone[part] for part in parts])}
        forms["concat"] = score(ensemble.side_by_side([vectors[part] for part in parts]), labels, splits, recall_at)
        combination = "-".join(map(str, choice))
        scored += [{"run": run, "form": form, "combination": combination} | forms[form] for form in forms]
    return scored


def summarise(rows: Rows, chosen_by: str) -> dict[str, dict[str, dict[str, float]]]:
    """{form: {metric: {mean, std, min, max, best}}} of one run."""
    summary = {}
    for form in FORMS:
        of_form = [row for row in rows if row["form"] == form]
        best = max(of_form, key=lambda row: row[chosen_by])
        metrics = [name for name in best if name not in ("run", "form", "combination")]
        summary[form] = {
            name: ensemble.summary_of([row[name] for row in of_form]) | {"best": best[name]} for name in metrics
        }
    return summary


def histograms(attributes: np.ndarray, labels: np.ndarray, names: list[str]) -> dict[str, list[float]]:
    """The mean attributes of CLASSES classes, evenly spread over all, by their names (Fig. 5)."""
    classes, means = np.unique(labels), ensemble.class_means(attributes, labels)
    shown = np.unique(np.linspace(0, len(classes) - 1, min(CLASSES, len(classes))).round().astype(int))
    return {names[classes[i]]: means[i].tolist() for i in shown}


def try_attributes(folds: Path, runs: list[str], table: Images, params: Params, seed: int) -> dict[str, dict]:
    """The prediction of unseen classes from the first fold's attributes, for runs with attributes (Fig. 5)."""
    transfers = {}
    for run in runs:
        first = first_of(folds, run)
        labels = table.labels[np.array(read_json(first / "config.json")["rows"])]
        if params.splits and (first / "attributes.zarr").exists() and len(np.unique(labels)) >= 4:
            given = [arrays.open(first / f"{name}.zarr")[:] for name in ("attributes", "embeddings")]
            transfers[run] = ensemble.transfer(*given, labels, params.splits, RIDGE, seed) | {
                "attributes": histograms(given[0], labels, table.names)
            }
    return transfers


def gather_pictures(folds: Path, runs: list[str], table: Images) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Tensors by name (`pixels`, `weights/<run>`, `nearest/<run>`), and the shown classes."""
    shown = {run: read_tensors(first_of(folds, run) / "pictures.safetensors") for run in runs}
    rows = shown[runs[0]]["rows"].numpy()
    pixels = shown[runs[0]]["pixels"].numpy()
    tensors = {"pixels": torch.from_numpy(collage.resize(pixels, THUMBNAIL) if pixels.shape[1] > THUMBNAIL else pixels)}
    for run, pictures in shown.items():
        tensors |= {f"{key}/{run}": tensor for key, tensor in pictures.items() if key not in ("rows", "pixels")}
    return tensors, [table.names[table.labels[row]] for row in rows]


def join_histories(folds: Path, trainings: dict[str, Trainings]) -> str:
    """All histories under one header, with run, fold and repeat as their first columns."""
    lines = []
    for run, fold, repeat in ((run, *training) for run, own in trainings.items() for training in own):
        file = folds / f"{run}-{fold}-{repeat}" / "history.csv"
        header, *rows = file.read_text(encoding="utf-8").splitlines()
        lines += [f"{run},{fold},{repeat},{row}" for row in rows]
    return "\n".join([f"run,fold,repeat,{header}", *lines]) + "\n"


def main(images: Path, folds: Path, output: Path, *, name: str, params: Params, lists: Lists, seed: int) -> str:
    runs = [run for run, spec in lists.gsp_runs.items() if spec.images == lists.gsp[name]]
    table = read_images(images)
    trainings = {run: lists.repeats_of(run) for run in runs}
    settings = {run: read_json(first_of(folds, run) / "config.json")["setting"] for run in runs}
    rows = {run: score_run(folds, run, trainings[run], table, params.recall_at) for run in runs}
    summary = {run: summarise(rows[run], settings[run]["chosen_by"]) for run in runs}
    tensors, classes = gather_pictures(folds, runs, table)
    with outputs.folder(output) as folder:
        (folder / "metrics.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        with (folder / "combinations.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[runs[0]][0]), lineterminator="\n")
            writer.writeheader()
            for run in runs:
                writer.writerows(rows[run])
        (folder / "history.csv").write_text(join_histories(folds, trainings), encoding="utf-8")
        write_tensors(tensors, folder / "pictures.safetensors")
        (folder / "pictures.json").write_text(json.dumps({"classes": classes}) + "\n", encoding="utf-8")
        transfers = try_attributes(folds, runs, table, params, seed)
        (folder / "transfer.json").write_text(json.dumps(transfers, indent=1) + "\n", encoding="utf-8")
    best = max(summary, key=lambda run: summary[run]["concat"]["map_at_r"]["mean"])
    return f"{counted(len(runs), 'run')}, best {best}: MAP@R {100 * summary[best]['concat']['map_at_r']['mean']:.2f} %"


if __name__ == "__main__":
    command.run(main, Params)
