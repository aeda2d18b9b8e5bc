"""What the chosen model gains, what its choice cost, and how it compares with what needs no training.

    python -m benchmarks.adaptation [--profile NAME] [--seeds 0 1 2] [--without TASK ...] [--distilled] [--candidates]

Each run is the real graph up to `choice`, in a temporary copy of the repository that shares its DVC cache. Its tasks
need labels, which no stage reads. One line of JSON for each run and row, R-Precision in percent on the test images of
each task: the encoder, as it is and less each task's own mean; its best form without training, by the criterion; and
the chosen model, with the bootstrap interval over queries of its difference to the encoder. The last two are less the
own mean, too, and also measured with query expansion and with database-side augmentation, which train nothing.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks.gain import copy_repository, graph_folder, read_values, reproduce, write_values
from polygrain.comparing.comparison import Comparison, mean_of
from polygrain.comparing.smoothing import cosines
from polygrain.compute import device
from polygrain.compute.vectors import unit_rows
from polygrain.config.lists import Lists, clusters_of
from polygrain.encoder.extract import embed
from polygrain.encoder.model import Model, load
from polygrain.encoder.stored import open_features
from polygrain.findings.chosen import CandidateRow, read_candidates
from polygrain.retrieval.metrics import query_metrics
from polygrain.retrieval.neighbours import nearest
from polygrain.selection import seen
from polygrain.selection.candidates.decision import interval
from polygrain.selection.candidates.forms import Form
from polygrain.store.collection import Collection, open_pixels, read_tables
from stages import choice

ADAPTING = (
    *("resolution", "features", "seeds", "pseudo_labels", "scatter"),
    *("adaptor", "knn_graph", "refreshed_graph", "fusion", "distillation"),
)
NEAREST = 3
SEARCHES = {"query expansion": False, "database-side augmentation": True}


def changed(values: dict, seed: int, unseen: str | None, distilled: bool) -> dict:
    """The values of a run: its seed, a task that does not train, and fewer models where `distilled`."""
    values = values | {"seed": seed}
    if unseen is not None:
        values["tasks"] = values["tasks"] | {unseen: values["tasks"][unseen] | {"unseen": True}}
    if distilled:
        coarsest = min(values["adaptors"], key=lambda name: clusters_of(name, 10**9))
        values |= {"adaptors": {coarsest: f"adaptor/{coarsest}"}}
        values |= {"fusions": {"average": "adaptor"}, "distillations": {"encoder": "resolution"}}
        models = ("pixels", "encoder", "untrained", coarsest, "average", "distilled_encoder", "chosen")
        known = values["models"] | {"distilled_encoder": "distillation/encoder"}
        values["models"] = {name: folder for name, folder in known.items() if name in models}
    return values


class Bench:
    """One run's images, and the R-Precision of every query under any embedding."""

    def __init__(self, data: Path, values: dict) -> None:
        lists = Lists(**{key: values[key] for key in Lists.model_fields})
        tasks = list(lists.tasks)
        self.folders = {name: data / folder for name, folder in lists.models.items()}
        self.resolution = data / "resolution"
        self.collection: Collection = read_tables(data / "images", tasks)
        self.pixels = open_pixels(data / "images", tasks)
        self.test = np.flatnonzero(~self.collection.is_train)
        self.params = choice.Params(**values["choice"])
        seeds, scatter = data / "seeds", data / "scatter"
        given = choice.read_granularities(data / "pseudo_labels", seeds, self.collection, lists, self.params)
        stored, views = open_features(data / "features", tasks), seen.read(data / "views")
        self.world = choice.World(self.collection, self.pixels, stored, views, given, (seeds, scatter))

    def folder_of(self, form: Form) -> Path:
        """Where the form's model lies; the encoder in any but its plain form sees at the side of all others."""
        return self.resolution if form.model == "encoder" and form != Form("encoder") else self.folders[form.model]

    def embed(self, model: Model, rows: np.ndarray) -> np.ndarray:
        return embed(model.to(device.best()), self.pixels, rows, *device.inference(model.config.size), "bench")

    def by_task(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each task with its rows among the test images."""
        tasks = self.collection.tasks[self.test]
        return ((task, np.flatnonzero(tasks == task)) for task in dict.fromkeys(tasks))

    def per_query(self, embeddings: np.ndarray) -> dict[str, np.ndarray]:
        """R-Precision in percent of each test image that has another one of its class, for each task."""
        result = {}
        for task, rows in self.by_task():
            values = query_metrics(embeddings[rows], self.collection.labels[self.test[rows]], 1).r_precision
            result[task] = 100 * values[~np.isnan(values)]
        return result

    def centred(self, embeddings: np.ndarray) -> np.ndarray:
        """Embeddings of the test images less the mean of each task's own."""
        result = embeddings.copy()
        for _, rows in self.by_task():
            result[rows] = Comparison(mean_of(embeddings[rows])).query(embeddings[rows])
        return result

    def expanded(self, embeddings: np.ndarray, gallery: bool) -> dict[str, np.ndarray]:
        """`per_query` with alpha query expansion, and, where asked, database-side augmentation of the gallery.

        Each image becomes the sum of itself and its three nearest, weighted by the third power of their cosines. A
        query is not in the gallery that it searches: where an image would lean on it, the next nearest takes its place.
        """
        result = {}
        for task, rows in self.by_task():
            x, labels = embeddings[rows], self.collection.labels[self.test[rows]]
            _, places = nearest(x, x, min(NEAREST + 1, len(rows) - 1), exclude_self=True)
            parts = np.maximum(cosines(x, places), 0)[:, :, None] ** 3 * x[places]
            wide = unit_rows(x + parts[:, :NEAREST].sum(1))
            scores = wide @ (wide if gallery else x).T
            for rank in range(min(NEAREST, places.shape[1]) if gallery else 0):
                without = unit_rows(x + np.delete(parts, rank, 1).sum(1))
                scores[places[:, rank], np.arange(len(rows))] = (wide[places[:, rank]] * without).sum(1)
            relevant = labels[:, None] == labels[None]
            np.fill_diagonal(scores, -np.inf)
            np.fill_diagonal(relevant, False)
            sizes = relevant.sum(1)
            hits = np.take_along_axis(relevant, np.argsort(-scores, 1, kind="stable"), 1).cumsum(1)
            queries = np.flatnonzero(sizes)
            result[task] = 100 * hits[queries, sizes[queries] - 1] / sizes[queries]
        return result


def form_of(row: CandidateRow) -> Form:
    return Form(row.model, row.strength, row.scale, row.is_mirrored, row.layer, row.dim, row.cost, row.blocks)


def embeddings_of(bench: Bench, forms: list[Form]) -> Iterator[tuple[Form, np.ndarray]]:
    """Test embeddings of each form, its last layer as in the chosen model."""
    for form in forms:
        yield form, bench.embed(choice.build(bench.folder_of(form), form, bench.world, bench.params), bench.test)


def means(per_query: dict[str, np.ndarray]) -> dict[str, float]:
    by_task = {task: float(values.mean()) for task, values in per_query.items()}
    return {"mean": round(float(np.mean(list(by_task.values()))), 2)} | {t: round(v, 2) for t, v in by_task.items()}


def difference(after: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> list[float]:
    """Mean over tasks of what `after` has more, with the bounds of its 95 % bootstrap interval over queries."""
    return [round(value, 2) for value in interval([after[task] - before[task] for task in after])]


def measure(folder: Path, label: dict, candidates: bool, unseen: str | None) -> None:
    values = read_values(folder / "params.yaml")
    adapting = sum(reproduce(folder, stage) for stage in ADAPTING)
    choosing = reproduce(folder, "choice")
    bench = Bench(folder / "data", values)
    listed = read_candidates(folder / "data/choice/criterion.csv")  # the best first

    def show(row: str, per_query: dict[str, np.ndarray], **more: object) -> None:
        shown = {unseen: per_query[unseen]} if unseen else per_query
        print(json.dumps(label | {"row": row} | means(shown) | more), flush=True)

    scale = next(row.scale for row in listed if row.name != "encoder")
    free = form_of(next(row for row in listed if (row.model, row.scale) == ("encoder", scale)))
    embeddings = dict(embeddings_of(bench, list(dict.fromkeys([Form("encoder"), free]))))
    plain, without = bench.per_query(embeddings[Form("encoder")]), bench.centred(embeddings[free])
    best = bench.per_query(without)
    show("encoder", plain)
    show("encoder, own means", bench.per_query(bench.centred(embeddings[Form("encoder")])))
    show("without training", best, form=free.name)
    for search, gallery in SEARCHES.items():
        show(search, bench.expanded(without, gallery), form=free.name)

    chosen = form_of(next(row for row in listed if row.is_chosen))
    embedded = bench.centred(bench.embed(load(folder / "data/choice"), bench.test))
    final = bench.per_query(embedded)
    ours = {unseen: final[unseen]} if unseen else final
    more = {"less encoder": difference(ours, plain), "less without training": difference(ours, best)}
    more |= {"choice takes": round(choosing / adapting, 3)} if adapting > 10 else {}
    show("chosen", final, form=chosen.name, **more)
    for search, gallery in SEARCHES.items():
        show(f"chosen, {search}", bench.expanded(embedded, gallery), form=chosen.name)
    if candidates:
        judge_candidates(bench, listed, chosen, label)


def judge_candidates(bench: Bench, listed: list[CandidateRow], chosen: Form, label: dict) -> None:
    """Test every candidate with labels: the regret (best less chosen), and the criterion's rank correlation."""
    criterion = {form_of(row): row.criterion for row in listed}
    tested = {form: means(bench.per_query(bench.centred(x))) for form, x in embeddings_of(bench, list(criterion))}
    pairs = np.array([(scores["mean"], criterion[form]) for form, scores in tested.items()])
    draws = np.random.default_rng(0).integers(len(pairs), size=(1000, len(pairs)))
    bounds = np.quantile([spearmanr(*pairs[rows].T)[0] for rows in draws], [0.025, 0.975])
    best = max(tested, key=lambda form: tested[form]["mean"])
    row = {
        "row": "candidates",
        "count": len(tested),
        "regret": round(tested[best]["mean"] - tested[chosen]["mean"], 2),
        "spearman": [round(float(x), 2) for x in (spearmanr(*pairs.T)[0], *bounds)],
        "best": best.name,
        "best mean": tested[best]["mean"],
    }
    print(json.dumps(label | row), flush=True)
    for form in sorted(tested, key=lambda form: -tested[form]["mean"]):
        print(json.dumps(label | {"row": form.name, "criterion": round(criterion[form], 2)} | tested[form]), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a folder below profiles/; without it the default data")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--without", nargs="+", default=[None], help="tasks to leave out of training in turn")
    parser.add_argument("--distilled", action="store_true", help="one granularity, and the distilled encoder")
    parser.add_argument("--candidates", action="store_true", help="test every candidate with labels")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        copy_repository(Path(temporary))
        graph = graph_folder(Path(temporary), arguments.profile)
        values = read_values(graph / "params.yaml")
        for seed in arguments.seeds:
            for unseen in arguments.without:
                write_values(graph / "params.yaml", changed(values, seed, unseen, arguments.distilled))
                measure(graph, {"seed": seed, "without": unseen}, arguments.candidates, unseen)
