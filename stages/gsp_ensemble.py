"""What the folds of every run on one folder of images are worth: each alone, averaged, and side by side.

Reads   the images' folder, gsp_folds/<run> of all runs on it
Writes  metrics.json   {run: {single | separate | concat | mean_vector: {metric: {mean, std, min, max, best}}}}, in
                       fractions; over folds and repeats for `single`, over all choices of one repeat per fold for the
                       others. `separate` averages the metrics of the chosen folds: the paper's 128-D; `concat`: its
                       512-D. `best` is of the row that is best by the metric that chose the state
        settings.json  {run: {protocol, chosen_by, network, embedding, folds, values}}, how each was trained
        combinations.csv   run, form, combination (the repeat of each fold), metrics
        history.csv        run and the columns of the fold's own
        transfer.json      {run: {distance, cosine, accuracy, chance}}, how far attributes predict unmet classes
        pictures.safetensors, pictures.json   images with every run's weights and strongest prototypes, and the mean
                       attributes of the shown classes
"""

import csv
import json
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.gsp import collage, ensemble
from polygrain.gsp.ensemble import transfer
from polygrain.gsp.folds.images import Images, read_images
from polygrain.retrieval.metrics import score
from polygrain.runner import command, outputs
from polygrain.runner.progress import progress
from polygrain.store import arrays
from polygrain.store.reading import read_json, reading, remedy_for
from polygrain.store.tensors import read_tensors, write_tensors

Rows = list[dict[str, str | float]]
FORMS = ("single", "separate", "concat", "mean_vector")


class Params(schema.Section):
    recall_at: list[schema.Count] = Field(min_length=1, max_length=100, description="K of the reported Recall@K")
    splits: int = Field(
        ge=0, le=1_000_000, description="random halves of the classes to try the attributes on; 0: none"
    )
    ridge: schema.Factor = Field(description="ridge regularisation of the predictor that is tried there")
    thumbnail: int = Field(ge=16, le=512, description="side of the report's pictures, px")


def score_run(folder: Path, run: str, table: Images, recall_at: list[int]) -> Rows:
    """One row per fold and repeat alone, and in each form per combination of them."""
    config = read_json(folder / "config.json")
    rows = np.array(config["rows"])
    labels, splits = table.labels[rows], table.splits[rows]
    folds = len(config["folds"])
    repeats = sum(1 for path in folder.glob("0-*") if path.is_dir())
    vectors = {
        (fold, repeat): arrays.open(folder / f"{fold}-{repeat}" / "embeddings.zarr")[:]
        for fold in range(folds)
        for repeat in range(repeats)
    }
    alone = {key: score(single, labels, splits, recall_at) for key, single in vectors.items()}
    found: Rows = [
        {"run": run, "form": "single", "combination": f"{fold}-{repeat}"} | metrics
        for (fold, repeat), metrics in alone.items()
    ]
    chosen = ensemble.combinations(folds, repeats)
    for combination in progress(chosen, f"combinations of {run}", unit="combination"):
        parts = list(enumerate(combination))
        scores = {"separate": ensemble.average([alone[part] for part in parts])}
        for form, joined in ensemble.combine([vectors[part] for part in parts]).items():
            scores[form] = score(joined, labels, splits, recall_at)
        name = "-".join(map(str, combination))
        found += [{"run": run, "form": form, "combination": name} | metrics for form, metrics in scores.items()]
    return found


def summarise(rows: Rows, chosen_by: str) -> dict[str, dict[str, float]]:
    """{metric: {mean, std, min, max, best}} of one run in one form; `best`: of the row with the highest `chosen_by`."""
    best = max(rows, key=lambda row: row[chosen_by])
    return {
        metric: ensemble.summary_of([row[metric] for row in rows]) | {"best": best[metric]}
        for metric in rows[0]
        if metric not in ("run", "form", "combination")
    }


def try_attributes(folds: Path, runs: list[str], table: Images, params: Params, seed: int) -> dict[str, dict]:
    """How the first fold's attributes carry over between classes, for the runs that have them (Fig. 5)."""
    found = {}
    for run in runs:
        first = folds / run / "0-0"
        labels = table.labels[np.array(read_json(folds / run / "config.json")["rows"])]
        if params.splits and (first / "attributes.zarr").exists() and len(np.unique(labels)) >= 4:
            known = [arrays.open(first / f"{name}.zarr")[:] for name in ("attributes", "embeddings")]
            found[run] = transfer(*known, labels, params.splits, params.ridge, seed)
    return found


def gather_pictures(
    folds: Path, runs: list[str], table: Images, size: int
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Tensors by name (`pixels`, `weights/<run>`, `nearest/<run>`, `attributes/<run>`), and the shown classes."""
    shown = {run: read_tensors(folds / run / "pictures.safetensors") for run in runs}
    rows = shown[runs[0]]["rows"].numpy()
    pixels = shown[runs[0]]["pixels"].numpy()
    tensors = {"pixels": torch.from_numpy(collage.resize(pixels, size) if pixels.shape[1] > size else pixels)}
    for run, found in shown.items():
        tensors |= {f"{key}/{run}": tensor for key, tensor in found.items() if key not in ("rows", "pixels")}
        file = folds / run / "0-0" / "attributes.zarr"
        if file.exists():
            attributes, evaluated = arrays.open(file)[:], np.array(read_json(folds / run / "config.json")["rows"])
            means = [attributes[table.labels[evaluated] == table.labels[row]].mean(0) for row in rows]
            tensors[f"attributes/{run}"] = torch.from_numpy(np.stack(means))
    return tensors, [table.names[table.labels[row]] for row in rows]


def join_histories(folds: Path, runs: list[str]) -> str:
    """The lines of every run's history behind its name, under one header."""
    lines = []
    for run in runs:
        file = folds / run / "history.csv"
        with reading(file, remedy_for(file.parent)):
            header, *rows = file.read_text(encoding="utf-8").splitlines()
        lines += [f"{run},{row}" for row in rows]
    return "\n".join([f"run,{header}", *lines]) + "\n"


def main(images: Path, folds: Path, output: Path, *, name: str, params: Params, lists: Lists, seed: int) -> str:
    runs = [run for run, spec in lists.gsp_runs.items() if spec.images == lists.gsp[name]]
    table = read_images(images)
    settings = {run: read_json(folds / run / "config.json")["setting"] for run in runs}
    found = {run: score_run(folds / run, run, table, params.recall_at) for run in runs}
    rows = list(chain.from_iterable(found.values()))
    summary = {
        run: {
            form: summarise([row for row in found[run] if row["form"] == form], settings[run]["chosen_by"])
            for form in FORMS
        }
        for run in runs
    }
    tensors, classes = gather_pictures(folds, runs, table, params.thumbnail)
    with outputs.folder(output) as folder:
        (folder / "metrics.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        with (folder / "combinations.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        (folder / "history.csv").write_text(join_histories(folds, runs), encoding="utf-8")
        write_tensors(tensors, folder / "pictures.safetensors")
        (folder / "pictures.json").write_text(json.dumps({"classes": classes}) + "\n", encoding="utf-8")
        moved = try_attributes(folds, runs, table, params, seed)
        (folder / "transfer.json").write_text(json.dumps(moved, indent=1) + "\n", encoding="utf-8")
    best = max(summary, key=lambda run: summary[run]["concat"]["map_at_r"]["mean"])
    return f"{len(runs)} runs, best {best}: MAP@R {100 * summary[best]['concat']['map_at_r']['mean']:.2f} %"


if __name__ == "__main__":
    command.run(main, Params)
