"""R-Precision of each way to compare, in collections with few and with many images of a kind.

python -m benchmarks.regimes profiles/NAME [profiles/OTHER ...]

NAME is a profile of labelled tasks, with the protocol `collection`, whose `features` and `resolution` are there. Its
collection is thinned to 3, 6, 12 and 30 images of a kind, three draws of them; the queries stay the same. A cell is
R-Precision in percent, the mean over tasks and draws, and in brackets the worst task's difference to the encoder as it
is. Views are those that `resolution` saw. `said` smooths by the number of images of a kind. This table decides which
setting is worth its place.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polygrain.collection.postprocessing.comparison import Comparison, choose, mean_of
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.stored import open_features
from polygrain.fisher.closed_form import Basis, basis_of, closed_form, of_views
from polygrain.fisher.estimator import CLUSTERED, clusters_of
from polygrain.fisher.scatter import Scatter, within_clusters
from polygrain.retrieval import whitening
from polygrain.retrieval.metrics import collection_metrics
from polygrain.selection import seen
from polygrain.store.image_table import ImageTable, read_tables
from polygrain.store.reading import read_json
from stages.seeds import smoothed

KINDS, DRAWS = (3, 6, 12, 30, None), 3
ROWS = ["as it is", "centred", "layer", "smoothed", "smoothed, said"]


def thinned(collection: ImageTable, most: int | None, draw: int) -> np.ndarray:
    """The training rows, at most `most` of each class of each task."""
    rows = np.random.default_rng(draw).permutation(collection.train)
    kept: dict[tuple, list[int]] = {}
    for row in rows:
        kept.setdefault((collection.tasks[row], collection.labels[row]), []).append(row)
    return np.sort(np.concatenate([own[:most] for own in kept.values()]))


def layer_of(vectors: np.ndarray, tasks: np.ndarray, basis: Basis, views: Scatter | None) -> whitening.Affine:
    """The last layer as a new profile makes it: of clusters of smoothed features, and of views."""
    turned, clusters = basis.turn(vectors), clusters_of(smoothed(vectors, tasks, CLUSTERED), 0)
    return closed_form(basis, [within_clusters(turned, labels) for labels in clusters], views)


def measure(
    outputs: np.ndarray, views: np.ndarray, collection: ImageTable, rows: np.ndarray, alike: dict[str, int]
) -> Iterator[tuple[str, list[float]]]:
    """Each way with its R-Precision on each task."""
    vectors, tasks = outputs[rows], collection.tasks[rows]
    basis = basis_of(vectors, tasks)
    assert basis is not None
    behind = whitening.apply(layer_of(vectors, tasks, basis, of_views(basis, views)), outputs)
    for name in ROWS:
        values, ends = [], outputs if name in ROWS[:2] else behind
        for task in alike:
            own, asked = rows[tasks == task], np.flatnonzero((collection.tasks == task) & collection.is_query)
            mean, front = () if name == "as it is" else mean_of(ends[own]), lambda _, of=outputs[own]: of
            by = Comparison(mean)
            if "smoothed" in name:
                by, _ = choose(ends[own], alike[task] if "said" in name else None, mean=mean, front=front)
            labels = collection.labels[asked], collection.labels[own]
            scores = collection_metrics(by.query(ends[asked]), by.rows(ends[own], front), *labels, 1)
            values.append(100 * float(np.nanmean(scores.r_precision)))
        yield name, values


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        facts = read_json(folder / "data/resolution/config.json")
        names = [path.name for path in sorted((folder / "data/images").iterdir()) if path.is_dir()]
        collection, stored = read_tables(folder / "data/images", names), open_features(folder / "data/features", names)
        width = stored.facts["widths"][0]
        outputs = unit_rows(stored.rows[:].astype(np.float32)[:, :width])
        views = seen.read(folder / "data/views").views[stored.facts["side"]].rows[:]
        views = unit_rows(views[..., :width].astype(np.float32).reshape(-1, width)).reshape(*views.shape[:2], width)
        print(f"{facts['architecture']}, {stored.facts['side']} px")
        print("| of a kind | " + " | ".join(ROWS) + " |")
        print("|---|" + "---:|" * len(ROWS))
        for most in KINDS:
            found: dict[str, list] = {}
            for draw in range(DRAWS if most else 1):
                rows = thinned(collection, most, draw)
                sizes = {task: collection.labels[rows[collection.tasks[rows] == task]] for task in names}
                each = {task: np.unique(of, return_counts=True)[1].mean() for task, of in sizes.items()}
                alike = {task: max(2, round(count)) for task, count in each.items()}
                for name, values in measure(outputs, views, collection, rows, alike):
                    found.setdefault(name, []).append(values)
            base, *_ = tables = [np.mean(values, 0) for values in found.values()]
            cells = [f"{of.mean():.1f} ({(of - base).min():+.1f})" for of in tables]
            print(f"| {most or 'all'} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
