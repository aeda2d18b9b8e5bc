"""What the choice of the grain and of the smoothing gives, measured with labels, in collections of many shapes.

python -m benchmarks.grain profiles/NAME

NAME is a profile of labelled tasks, with the protocol `collection`, whose features are there. From what they store, one
collection after another is drawn: all images, each task alone, 3 to 30 images a class, and 300 or 1,000 images of all
tasks together. In each the drawn queries search; a row of the table is a mean over tasks of R-Precision less that of
the encoder as it is, and `best` is the best of all layers and axes that are compared, chosen with labels for each task.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polygrain.compute.vectors import unit_rows
from polygrain.encoder.stored import open_features
from polygrain.retrieval import whitening
from polygrain.retrieval.metrics import collection_metrics
from polygrain.retrieval.smoothing import Smoothing, mixed_with_nearest, smooth_as
from polygrain.retrieval.smoothing_choice import GRAINED, NONE, choose
from polygrain.selection import grain
from polygrain.selection.grain import AXES, GrainSettings, cut
from polygrain.store.collection import Collection, read_tables
from polygrain.store.reading import read_json

SETTINGS = GrainSettings(layers=["turned", "quarter", "half"], axes=list(AXES), middle=96, images=20_000)
COLUMNS = ["half to 512", "unsaid", "alike / 2", "alike", "alike x 2", "best", "unsaid, smoothed", "alike, smoothed"]
FEWEST = 20


def drawn(collection: Collection, generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Collections by name, as rows."""
    train, tasks = collection.train, collection.tasks
    yield "all images", train
    for task in dict.fromkeys(tasks):
        yield f"{task} alone", train[tasks[train] == task]
    for count in (30, 12, 6, 3):
        classes = [(task, label) for task, label in zip(tasks[train], collection.labels[train], strict=True)]
        places: dict[tuple, list[int]] = {}
        for row in generator.permutation(len(train)):
            places.setdefault(classes[row], []).append(train[row])
        yield f"{count} a class", np.sort(np.concatenate([own[:count] for own in places.values()]))
    for count in (1000, 300):
        yield f"{count} images", np.sort(generator.permutation(train)[:count])


def score(vectors: np.ndarray, collection: Collection, task: str, rows: np.ndarray, chosen: Smoothing = NONE) -> float:
    """R-Precision of a task's drawn queries in some rows, in percent."""
    own, asked = rows[collection.tasks[rows] == task], np.flatnonzero((collection.tasks == task) & collection.is_query)
    images, queries = vectors[own], vectors[asked]
    if chosen.strength:
        images = smooth_as(images, chosen)
        queries = mixed_with_nearest(queries, images, chosen)
    scores = collection_metrics(queries, images, collection.labels[asked], collection.labels[own], 1)
    return 100 * float(np.nanmean(scores.r_precision))


def measure(outputs: np.ndarray, collection: Collection, rows: np.ndarray) -> dict[str, list[float]]:
    """By task the columns, less the encoder as it is."""
    tasks, layers = collection.tasks[rows], grain.fitted(outputs[rows], SETTINGS)
    known = {kind: whitening.apply(layer, outputs) for kind, layer in layers.items()}
    alike = {task: max(2, round(size_of(collection, rows[tasks == task]))) for task in dict.fromkeys(tasks)}
    factors = {"unsaid": None, "alike / 2": 0.5, "alike": 1, "alike x 2": 2}
    chosen = {
        name: grain.choose(
            outputs[rows],
            tasks,
            layers,
            {} if factor is None else {task: max(1, round(factor * count)) for task, count in alike.items()},
            SETTINGS,
            0,
        )
        for name, factor in factors.items()
    }
    result = {}
    for task in alike:
        own = rows[tasks == task]
        if len(own) < FEWEST:
            continue
        of = {"half to 512": score(cut(known["half"], 512), collection, task, rows)}
        for name, one in chosen.items():
            of[name] = score(cut(known[one.layer], one.axes[task]), collection, task, rows)
        of["best"] = max(score(cut(every, axes), collection, task, rows) for every in known.values() for axes in AXES)
        for name, count in (("unsaid", None), ("alike", alike[task])):
            vectors = known[chosen[name].layer]
            by = choose(vectors[own], GRAINED, is_whitened=False, alike=count).smoothing
            vectors = vectors if by.strength else cut(vectors, chosen[name].axes[task])
            of[f"{name}, smoothed"] = score(vectors, collection, task, rows, by)
        plain = score(outputs, collection, task, rows)
        result[task] = [of[column] - plain for column in COLUMNS]
    return result


def size_of(collection: Collection, rows: np.ndarray) -> float:
    """Images of a class, as a query sees them: the mean over images."""
    _, place, counts = np.unique(collection.labels[rows], return_inverse=True, return_counts=True)
    return float(counts[place].mean())


def main() -> None:
    folder = Path(sys.argv[1])
    facts = read_json(folder / "data/resolution/config.json")
    tasks = [path.name for path in sorted((folder / "data/images").iterdir()) if path.is_dir()]
    collection, stored = read_tables(folder / "data/images", tasks), open_features(folder / "data/features", tasks)
    outputs = unit_rows(stored.rows[:].astype(np.float32)[:, : stored.facts["widths"][0]])
    print(
        f"{facts['architecture']}, {stored.facts['side']} px; points over the encoder as it is, mean over tasks (worst)"
    )
    print("| collection | " + " | ".join(COLUMNS) + " |\n|---|" + "---:|" * len(COLUMNS))
    for name, rows in drawn(collection, np.random.default_rng(0)):
        of = np.array(list(measure(outputs, collection, rows).values()))
        cells = [f"{mean:+.1f} ({worst:+.1f})" for mean, worst in zip(of.mean(0), of.min(0), strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
