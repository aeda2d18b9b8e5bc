"""What the clicks of the search page give, simulated: labels click, in collections of many shapes.

python -m benchmarks.clicks profiles/NAME

As `benchmarks.grain`: a profile of labelled tasks, with the protocol `collection`, whose features are there. Each task
alone, with all images or 12, 6 or 3 of a class, is smoothed and cut as `polygrain embed` does, without and with the
number of images that are alike. Some of its images ask, and the others are smoothed without them; the group with more
images of the query's class gets the click. A row of the table is a mean over tasks of the **regret**: points of
R-Precision of the drawn queries below the best setting of the knob, before any click and after 10, 20 and 30, the worst
in brackets; and the clicks that were made, and of these the decided ones. `all ways`: what that best setting is below
the best of plain and smoothed rows by any of the compared graphs, strengths and axes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.grain import SETTINGS, size_of
from polygrain.app.gallery import Gallery, Setting
from polygrain.app.knob import Knob, line
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.stored import open_features
from polygrain.retrieval import smoothing_choice, whitening
from polygrain.retrieval.metrics import collection_metrics
from polygrain.retrieval.smoothing import Smoothing, smooth_as
from polygrain.selection import grain
from polygrain.selection.clicks import DEPTHS, MOST, Clicks
from polygrain.selection.grain import AXES, FEWEST, axes_for, cut
from polygrain.store.collection import Collection, read_tables

AFTER, DRAWS, QUERIES = (0, 10, 20, MOST), 4, 60
GRAPHS, STRENGTHS = (5, 10, 20, 40), (0.5, 0.8, 0.95)


def collections(collection: Collection, generator: np.random.Generator) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """By name the rows of each task."""
    train = collection.train
    of_task = {task: train[collection.tasks[train] == task] for task in dict.fromkeys(collection.tasks)}
    yield "all images", of_task
    for count in (12, 6, 3):
        few = {}
        for task, rows in of_task.items():
            shuffled = generator.permutation(rows)
            labels = collection.labels[shuffled]
            few[task] = np.sort(np.concatenate([shuffled[labels == one][:count] for one in np.unique(labels)]))
        yield f"{count} a class", few


def knob_of(vectors: np.ndarray, alike: int | None) -> tuple[Gallery, Gallery | None, list[Setting], Setting]:
    """Plain and smoothed rows, the settings and the chosen one, as `polygrain embed` and the page have them."""
    dim, paths = vectors.shape[1], [str(row) for row in range(len(vectors))]
    by = smoothing_choice.choose(vectors, smoothing_choice.GRAINED, is_whitened=False, alike=alike).smoothing
    axes = 96 if alike is None or len(vectors) <= FEWEST else axes_for(vectors, AXES, alike)
    plain = Gallery(Path("/"), paths, vectors, "")
    smoothed = Gallery(Path("/"), paths, smooth_as(vectors, by), "", smoothing=by) if by.strength else None
    return plain, smoothed, line(dim, axes, smoothed is not None), Setting(dim, 1.0) if smoothed else Setting(axes)


def after_clicks(knob: Knob, labels: np.ndarray, seed: int) -> tuple[list[int], list[int]]:
    """The places after 0, 10, 20 and 30 clicks, and how many were made and decided."""
    places, (asked, ranked) = knob.clickable, knob.asked(QUERIES, 2 * max(DEPTHS), seed)
    test, votes = Clicks(ranked, places.index(knob.start)), ""
    while (question := test.after(votes).question) is not None:
        own = labels[asked[question.query]]
        first, second = ((labels[rows] == own).sum() for rows in (question.first, question.second))
        votes += "0" if first == second else "1" if first > second else "2"
    return [places[test.after(votes[:count]).best] for count in AFTER], [len(votes), len(votes) - votes.count("0")]


def measure(vectors: np.ndarray, collection: Collection, task: str, rows: np.ndarray, alike: int | None) -> np.ndarray:
    """Regret after 0, 10, 20 and 30 clicks; clicks made and decided; what the best setting is below the best of all."""
    knob = Knob(*knob_of(vectors[rows], alike))
    asked = np.flatnonzero((collection.tasks == task) & collection.is_query)

    def percent(images: np.ndarray) -> float:
        queries = cut(vectors[asked], images.shape[1])
        scores = collection_metrics(queries, images, collection.labels[asked], collection.labels[rows], 1)
        return 100 * float(np.nanmean(scores.r_precision))

    values = np.array([percent(knob.at(place).vectors(np.arange(len(rows)))) for place in range(len(knob.settings))])
    graphs = [
        Smoothing(strength, count, whitened=True) for strength in STRENGTHS for count in GRAPHS if count < len(rows)
    ]
    every = [vectors[rows], *(smooth_as(vectors[rows], one) for one in graphs)]
    best = max(percent(cut(images, axes)) for images in every for axes in AXES)
    results = []
    for seed in range(DRAWS):
        places, made = after_clicks(knob, collection.labels[rows], seed)
        results.append([*(values.max() - values[places]), *made, best - values.max()])
    return np.mean(results, 0)


def main() -> None:
    folder = Path(sys.argv[1])
    tasks = [path.name for path in sorted((folder / "data/images").iterdir()) if path.is_dir()]
    collection, stored = read_tables(folder / "data/images", tasks), open_features(folder / "data/features", tasks)
    outputs = unit_rows(stored.rows[:].astype(np.float32)[:, : stored.facts["widths"][0]])
    layer = grain.fitted(outputs[collection.train], SETTINGS)["turned"]
    vectors = whitening.apply(layer, outputs)
    print(
        "| collection | alike | " + " | ".join(f"{count} clicks" for count in AFTER) + " | made, decided | all ways |"
    )
    print("|---|---|" + "---:|" * (len(AFTER) + 2))
    for name, of_task in collections(collection, np.random.default_rng(0)):
        for said in (False, True):
            alike = {task: max(2, round(size_of(collection, rows))) if said else None for task, rows in of_task.items()}
            of = np.array([measure(vectors, collection, task, rows, alike[task]) for task, rows in of_task.items()])
            cells = [f"{mean:.2f} ({worst:.1f})" for mean, worst in zip(of.mean(0)[:4], of.max(0)[:4], strict=True)]
            made, decided, ways = of.mean(0)[4:]
            cells += [f"{made:.0f}, {decided:.0f}", f"{ways:.2f}"]
            print(f"| {name} | {'said' if said else 'unsaid'} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
