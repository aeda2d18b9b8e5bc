"""What a sceptic tries first: foreign images beside a collection, and kinds that come after the fit, with labels.

python -m benchmarks.foreign MODEL TASK [TASK ...] [--foreign FOLDER]

MODEL is a model's folder, such as encoders/vit48 or profiles/NAME/data/encoder; TASK has a folder for each class, and
FOLDER images of none of them. A fifth of each class asks. A cell is R-Precision in percent, the mean of the tasks, and
in brackets the worst task's difference to the encoder as it is.

    alone         each task's queries search its other images
    other tasks   the same queries search those of all tasks at once
    foreign       the same queries search these and the images of FOLDER
    later kinds   queries of the second half of the classes search their task; only the first half was fitted

A layer is fitted once to what is searched of all tasks, never to FOLDER. All rows but the first are less the mean of
what is searched. `true pairs` has labels in place of clusters: the bound.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polygrain import embed, load
from polygrain.app.embedding import squared
from polygrain.comparing.comparison import Comparison, choose, mean_of
from polygrain.encoder.model import Model
from polygrain.encoder.views import Augmentation
from polygrain.fisher.closed_form import Plan, basis_of, closed_form, of_views, plan_of
from polygrain.fisher.estimator import scatters
from polygrain.fisher.scatter import within_clusters
from polygrain.retrieval import whitening
from polygrain.retrieval.metrics import UNLABELLED, collection_metrics
from polygrain.selection.criterion import CriterionSettings, Sample, embed_views

AXES, VIEWED = 256, 400  # of the whitenings; images of a task that are seen in views
SHAPE = Augmentation(smallest_crop=0.2, turn=15, flip=0.5, stroke=0, jitter=0.1, tint=0, grey=0, blur=0.3)
COLOURS = Augmentation(smallest_crop=0.6, turn=0, flip=0, stroke=0, jitter=0.4, tint=0.3, grey=0.3, blur=0)
SETTINGS = CriterionSettings(images=VIEWED, fewest=2, trained=SHAPE, recoloured=COLOURS, coarse=0.42, neighbours=5)


class Images(NamedTuple):
    """Of each image its task and class, whether it asks, and whether its class comes later."""

    tasks: np.ndarray
    kinds: np.ndarray
    asks: np.ndarray
    late: np.ndarray


def read(tasks: list[Path]) -> tuple[list[Path], Images]:
    """The images of all tasks; classes are counted over all of them."""
    generator, paths, rows, kind = np.random.default_rng(0), [], [], 0
    for number, task in enumerate(tasks):
        classes = sorted(folder for folder in task.iterdir() if folder.is_dir())
        for place, folder in enumerate(classes):
            own, kind = sorted(folder.iterdir()), kind + 1
            asked = generator.permutation(len(own)) < max(1, len(own) // 5)
            paths += own
            rows += [(number, kind, asks, place >= len(classes) // 2) for asks in asked]
    owners, kinds, asks, late = np.array(rows).T
    return paths, Images(owners, kinds, asks.astype(bool), late.astype(bool))


def in_views(model: Model, paths: list[Path], images: Images) -> tuple[np.ndarray, np.ndarray]:
    """Some images of each task that are searched, and behind the model they and their views: image, view, dim."""
    searched, generator = np.flatnonzero(~images.asks), np.random.default_rng(0)
    own = [searched[images.tasks[searched] == task] for task in np.unique(images.tasks)]
    rows = np.concatenate([np.sort(generator.permutation(of)[:VIEWED]) for of in own])
    squares = np.stack([squared(model, paths[row]) for row in rows])
    return rows, embed_views(model, squares, Sample(np.arange(len(rows)), images.tasks[rows]), SETTINGS).stacked()


def layers(outputs: np.ndarray, images: Images, views: tuple, fitted: np.ndarray) -> dict:
    """What each way puts behind the encoder, fitted to some of the images."""
    rows, plan = np.ascontiguousarray(outputs[fitted]), plan_of(None)
    basis = basis_of(rows, images.tasks[fitted])
    assert basis is not None
    clusters = scatters(basis, rows, [int(size) for size in plan.sizes], 0)
    pairs = {1.0: within_clusters(basis.turn(rows), images.kinds[fitted])}
    found = closed_form(basis, clusters, of_views(basis, views[1][np.isin(views[0], fitted)]), plan)
    return {
        "as it is": None,
        "own mean": None,
        "PCA-whitened": whitening.fit(rows, AXES),
        "half-whitened": whitening.fit(rows, AXES, "half"),
        "true pairs": closed_form(basis, pairs, None, Plan((1,), False, "weighted", 0.0)),
        "closed form": found,
        "closed form, smoothed": found,
    }


def score(way: str, layer: whitening.Whitening | None, asked: tuple, offered: tuple) -> np.ndarray:
    """R-Precision of each query among what is offered; both are outputs of the encoder and their classes."""
    queries, images = (outputs if layer is None else whitening.apply(layer, outputs) for outputs, _ in (asked, offered))
    by = Comparison(() if way == "as it is" else mean_of(images), share=0.0)
    if way.endswith("smoothed"):
        by, _ = choose(images, mean=by.mean, front=lambda _: offered[0])
    searched = by.rows(images, lambda _: offered[0])
    return collection_metrics(by.query(queries), searched, asked[1], offered[1]).r_precision


def regimes(outputs: np.ndarray, images: Images, foreign: np.ndarray) -> Iterator[tuple[str, np.ndarray, tuple]]:
    """Each regime by parts: the rows that ask, and what they search, with its classes."""
    tasks, kinds, asks, late = images
    own = {task: (tasks == task) & ~asks for task in np.unique(tasks)}
    for task, searched in own.items():
        yield "alone", np.flatnonzero((tasks == task) & asks), (outputs[searched], kinds[searched])
    yield "other tasks", np.flatnonzero(asks), (outputs[~asks], kinds[~asks])
    if len(foreign):
        labels = np.concatenate([kinds[~asks], np.full(len(foreign), UNLABELLED)])
        yield "foreign", np.flatnonzero(asks), (np.concatenate([outputs[~asks], foreign]), labels)
    for task, searched in own.items():
        yield "later kinds", np.flatnonzero((tasks == task) & asks & late), (outputs[searched], kinds[searched])


def measure(outputs: np.ndarray, images: Images, views: tuple, foreign: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """By regime and way the R-Precision of each task, in percent."""
    every = layers(outputs, images, views, np.flatnonzero(~images.asks))
    early = layers(outputs, images, views, np.flatnonzero(~images.asks & ~images.late))
    found: dict[str, dict[str, list]] = {}
    for regime, rows, offered in regimes(outputs, images, foreign):
        for way, layer in (early if regime == "later kinds" else every).items():
            scores = score(way, layer, (outputs[rows], images.kinds[rows]), offered)
            of_tasks = [np.nanmean(scores[images.tasks[rows] == task]) for task in np.unique(images.tasks[rows])]
            found.setdefault(regime, {}).setdefault(way, []).extend(of_tasks)
    return {regime: {way: 100 * np.array(of) for way, of in ways.items()} for regime, ways in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("tasks", type=Path, nargs="+")
    parser.add_argument("--foreign", type=Path)
    given = parser.parse_args()
    (paths, images), model = read(given.tasks), load(given.model)
    foreign = embed(model, sorted(given.foreign.iterdir()) if given.foreign else [])
    found = measure(embed(model, paths), images, in_views(model, paths, images), foreign)
    print(f"| {given.model}, {images.asks.sum()} queries | " + " | ".join(found) + f" |\n|---|{'---:|' * len(found)}")
    for way in found["alone"]:
        tables = [(of[way].mean(), (of[way] - of["as it is"]).min()) for of in found.values()]
        print(f"| {way} | " + " | ".join(f"{mean:.1f} ({worst:+.1f})" for mean, worst in tables) + " |")


if __name__ == "__main__":
    main()
