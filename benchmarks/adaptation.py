"""What the chosen model gains, what its choice cost, and how it does beside what needs no training.

    python -m benchmarks.adaptation [--profile NAME] [--seeds 0 1 2] [--without TASK ...] [--distilled] [--rivals]
                                    [--candidates]

Each run is the real graph up to `choice`, in a temporary copy of the repository that shares its DVC cache. Its tasks
need labels: they are read here and by no stage. One JSON line per run and row, R-Precision in percent on the test
images of each task: the encoder, its best form without training by the criterion at the same side, and the chosen model
with the bootstrap interval over queries of its difference to the encoder; these two with query expansion and with
database-side augmentation, too, which cost a search more and train nothing.

`--without` leaves each of these tasks out of training in turn, and tests on it. `--distilled` leaves out all but the
coarsest granularity and the distilled encoder, to save time. `--rivals` adds what else trains on the same images:
random sets, TLDR-style reduction and a linear layer on the same pseudo-labels, each in its best form by the criterion.
`--candidates` tests every candidate of the choice with labels: the regret (best less chosen) and the rank correlation
of criterion and R-Precision.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from ruamel.yaml import YAML
from scipy.stats import spearmanr

from benchmarks.gain import copy_repository, graph_folder
from benchmarks.rows import MORE
from polygrain.compute import device
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.extract import embed
from polygrain.encoder.model import Model, load
from polygrain.grappa.report import chosen as chosen_page
from polygrain.retrieval.expansion import NEAREST, shares
from polygrain.retrieval.metrics import query_metrics
from polygrain.retrieval.neighbours import nearest
from polygrain.selection.candidates.decision import interval
from polygrain.selection.candidates.forms import Form, add_last_layer, shape
from polygrain.selection.criterion import draw_clear, embed_reference, neighbours
from polygrain.store.collection import Collection, open_pixels, read_tables
from stages import choice

ADAPTING = ("resolution", "seeds", "pseudo_labels", "adaptor", "knn_graph", "fusion", "distillation", "features")


def set_values(params: Path, text: str, seed: int, unseen: str | None, distilled: bool, rivals: bool) -> None:
    """Writes the values of `text` with what this run changes."""
    yaml = YAML(typ="safe")
    values = yaml.load(text)
    values["seed"] = seed
    if unseen is not None:
        values["tasks"][unseen]["unseen"] = True
    if distilled:
        first = min(values["granularities"], key=lambda name: int(name[1:]))
        values["granularities"] = {first: f"adaptor/{first}"}
        values |= {"fusions": {"average": "adaptor"}, "distillations": {"encoder": "resolution"}}
        kept = ("pixels", "encoder", "untrained", first, "average", "distilled_encoder", "chosen")
        values["models"] = {name: folder for name, folder in values["models"].items() if name in kept}
    if rivals:
        values["baselines"] = MORE["baselines"]
        values["models"] |= {name: f"baseline/{name}" for name in MORE["baselines"]}
    with params.open("w", encoding="utf-8") as stream:
        yaml.dump(values, stream)


def reproduce(folder: Path, stage: str) -> float:
    """Runs the graph up to a stage; returns the seconds it took."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"}
    start = time.monotonic()
    subprocess.run(["dvc", "repro", "-q", stage], cwd=folder, env=environment, check=True)
    return time.monotonic() - start


class Bench:
    """One run's images, and the R-Precision of every query under any embedding."""

    def __init__(self, data: Path, tasks: list[str], models: dict[str, str], batch: int) -> None:
        self.folders, self.batch = {name: data / folder for name, folder in models.items()}, batch
        self.resolution = data / "resolution"
        self.collection: Collection = read_tables(data / "images", tasks)
        self.pixels = open_pixels(data / "images", tasks)
        self.train, self.test = self.collection.train, np.flatnonzero(~self.collection.is_train)

    def folder_of(self, form: Form) -> Path:
        """Where the form's model lies; the encoder does at its own side, and at that at which all others see."""
        return self.resolution if form.model == "encoder" and form != Form("encoder") else self.folders[form.model]

    def embed(self, model: Model, rows: np.ndarray) -> np.ndarray:
        return embed(model.to(device.best()), self.pixels, rows, self.batch, "auto", "bench")

    def per_query(self, embeddings: np.ndarray) -> dict[str, np.ndarray]:
        """R-Precision in percent of each test image that has one of its class beside it, for each task."""
        found = {}
        for task in dict.fromkeys(self.collection.tasks[self.test]):
            own = np.flatnonzero(self.collection.tasks[self.test] == task)
            values = query_metrics(embeddings[own], self.collection.labels[self.test[own]], 1).r_precision
            found[task] = 100 * values[~np.isnan(values)]
        return found

    def expanded(self, embeddings: np.ndarray, gallery: bool) -> dict[str, np.ndarray]:
        """`per_query` with alpha query expansion, and where asked with database-side augmentation of the gallery.

        Each image becomes the sum of itself and its three nearest, weighted by the third power of their cosines. A
        query is not in the gallery that it searches: where an image would lean on it, the next nearest takes its place.
        """
        found = {}
        for task in dict.fromkeys(self.collection.tasks[self.test]):
            own = np.flatnonzero(self.collection.tasks[self.test] == task)
            x, labels = embeddings[own], self.collection.labels[self.test[own]]
            _, places = nearest(x, x, min(NEAREST + 1, len(own) - 1), exclude_self=True)
            parts = shares(x, x[places])
            wide = unit_rows(x + parts[:, :NEAREST].sum(1))
            scores = wide @ (wide if gallery else x).T
            for rank in range(min(NEAREST, places.shape[1]) if gallery else 0):
                without = unit_rows(x + np.delete(parts, rank, 1).sum(1))
                scores[places[:, rank], np.arange(len(own))] = (wide[places[:, rank]] * without).sum(1)
            relevant = labels[:, None] == labels[None]
            np.fill_diagonal(scores, -np.inf)
            np.fill_diagonal(relevant, False)
            sizes = relevant.sum(1)
            hits = np.take_along_axis(relevant, np.argsort(-scores, 1, kind="stable"), 1).cumsum(1)
            asked = np.flatnonzero(sizes)
            found[task] = 100 * hits[asked, sizes[asked] - 1] / sizes[asked]
        return found


def form_of(one: chosen_page.CandidateRow) -> Form:
    return Form(one.model, one.strength, one.scale, one.is_mirrored, one.layer, one.dim, one.cost, one.blocks)


def embeddings_of(bench: Bench, wanted: list[Form]) -> Iterator[tuple[Form, np.ndarray]]:
    """Test embeddings of each form; what lies behind is fitted to the training images, as in the chosen model."""
    for base in dict.fromkeys(replace(form, layer="none", dim=None) for form in wanted):
        model = load(bench.folder_of(base))
        shaped = shape(model, base)
        train, test = (bench.embed(shaped, rows) for rows in (bench.train, bench.test))
        for form in (f for f in wanted if replace(f, layer="none", dim=None) == base):
            behind = shape(model, base)
            add_last_layer(behind, model.reduction, form, train)
            vectors = behind.reduction(torch.from_numpy(test)).numpy()
            yield form, unit_rows(vectors)


def best_forms(bench: Bench, names: list[str], params: choice.Params, seed: int) -> list[Form]:
    """Each model's best form by the criterion, of the strengths and last layers that the choice tries."""
    encoder = load(bench.folders["encoder"])
    sample = draw_clear(bench.collection, encoder.to(device.best()), bench.pixels, params.criterion, seed)
    seeing = load(bench.resolution).to(device.best())
    scale = seeing.config.side / encoder.config.side
    looks = embed_reference(seeing, bench.pixels, sample, params.reference, params.criterion)
    fitted = choice.draw_fitted(bench.train, params.fitted, seed)
    trial = choice.Trial(sample, fitted, neighbours(looks, sample, params.criterion.neighbours))
    for name in names:
        model = load(bench.folders[name])
        for strength in sorted({params.first_strength, *params.strengths}) if model.adaptors else [1.0]:
            choice.measure(trial, model, Form(name, strength, scale, cost=scale**2), bench.pixels, params)
    return [trial.candidates[trial.best_of(name)].form for name in names]


def means(found: dict[str, np.ndarray]) -> dict[str, float]:
    by_task = {task: float(values.mean()) for task, values in found.items()}
    return {"mean": round(float(np.mean(list(by_task.values()))), 2)} | {t: round(v, 2) for t, v in by_task.items()}


def difference(after: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> list[float]:
    """Mean over tasks of what `after` has more, with the bounds of its 95 % bootstrap interval over queries."""
    return [round(value, 2) for value in interval([after[task] - before[task] for task in after])]


def measure(folder: Path, label: dict, candidates: bool, unseen: str | None) -> None:
    values = YAML(typ="safe").load((folder / "params.yaml").read_text(encoding="utf-8"))
    adapting = sum(reproduce(folder, stage) for stage in ADAPTING)
    choosing = reproduce(folder, "choice")
    bench = Bench(folder / "data", list(values["tasks"]), values["models"], values["evaluation"]["batch"])

    def show(row: str, found: dict[str, np.ndarray], **more: object) -> None:
        kept = {unseen: found[unseen]} if unseen else found
        print(json.dumps(label | {"row": row} | means(kept) | more), flush=True)

    listed = chosen_page.read_candidates(folder / "data/choice/criterion.csv")
    scale = next(one.scale for one in listed if one.name != "encoder")
    free = form_of(next(one for one in listed if (one.model, one.scale) == ("encoder", scale)))  # the best stands first
    chosen = form_of(next(one for one in listed if one.is_chosen))
    known = dict(embeddings_of(bench, list(dict.fromkeys([Form("encoder"), free]))))
    plain = bench.per_query(known[Form("encoder")])
    show("encoder", plain)
    rival = bench.per_query(known[free])
    show("without training", rival, form=free.name)
    widened = {"query expansion": False, "database-side augmentation": True}
    for row, gallery in widened.items():
        show(row, bench.expanded(known[free], gallery), form=free.name)
    if values["baselines"]:
        forms = best_forms(
            bench, list(values["baselines"]), choice.Params.model_validate(values["choice"]), values["seed"]
        )
        for form, x in embeddings_of(bench, forms):
            show(form.model, bench.per_query(x), form=form.name)
    handed = bench.embed(load(folder / "data/choice"), bench.test)
    final = bench.per_query(handed)
    kept = [unseen] if unseen else list(final)
    ours = {task: final[task] for task in kept}
    less = {"less encoder": difference(ours, {t: plain[t] for t in kept})}
    less["less without training"] = difference(ours, {t: rival[t] for t in kept})
    shares = {"choice takes": round(choosing / adapting, 3)} if adapting > 10 else {}
    show("chosen", final, form=chosen.name, **less, **shares)
    for row, gallery in widened.items():
        show(f"chosen, {row}", bench.expanded(handed, gallery), form=chosen.name)
    if candidates:
        scores = [
            (form, means(bench.per_query(x))) for form, x in embeddings_of(bench, [form_of(one) for one in listed])
        ]
        of = {form_of(one): one.criterion for one in listed}
        true, criterion = [score["mean"] for _, score in scores], [of[form] for form, _ in scores]
        best = max(scores, key=lambda entry: entry[1]["mean"])
        taken = next(score["mean"] for form, score in scores if form == chosen)
        drawn = np.random.default_rng(0).integers(len(true), size=(1000, len(true)))
        rhos = [spearmanr(np.array(true)[rows], np.array(criterion)[rows])[0] for rows in drawn]
        ranks = [round(float(x), 2) for x in (spearmanr(true, criterion)[0], *np.quantile(rhos, [0.025, 0.975]))]
        row = {
            "row": "candidates",
            "count": len(scores),
            "regret": round(best[1]["mean"] - taken, 2),
            "spearman": ranks,
        }
        print(json.dumps(label | row | {"best": best[0].name, "best mean": best[1]["mean"]}), flush=True)
        for form, score in sorted(scores, key=lambda entry: -entry[1]["mean"]):
            print(json.dumps(label | {"row": form.name, "criterion": round(of[form], 2)} | score), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a folder below profiles/; without it the default data")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--without", nargs="+", default=[None], help="tasks to leave out of training in turn")
    parser.add_argument("--distilled", action="store_true", help="one granularity, and the distilled encoder")
    parser.add_argument("--rivals", action="store_true", help="what else trains on the same images")
    parser.add_argument("--candidates", action="store_true", help="test every candidate with labels")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        copy_repository(Path(temporary))
        inside = graph_folder(Path(temporary), arguments.profile)
        text = (inside / "params.yaml").read_text(encoding="utf-8")
        for seed in arguments.seeds:
            for unseen in arguments.without:
                set_values(inside / "params.yaml", text, seed, unseen, arguments.distilled, arguments.rivals)
                measure(inside, {"seed": seed, "without": unseen}, arguments.candidates, unseen)
