"""What a sceptic tries first: foreign images beside a collection, and kinds that come after the fit, with labels.

python -m benchmarks.foreign profiles/NAME [FOLDER]

NAME is a profile of labelled tasks, with the protocol `collection`, whose `features` and `views` are there; FOLDER has
images of none of their kinds. A cell is R-Precision in percent, the mean of the tasks, and in brackets the worst task's
difference to the encoder as it is, at the same side.

    alone         each task's queries search its other images
    other tasks   the same queries search those of all tasks at once
    foreign       the same queries search these and the images of FOLDER
    later kinds   queries of the second half of the classes search their task; only the first half was fitted

A layer is fitted once to what is searched of all tasks, never to FOLDER. All rows but the first are less the mean of
what is searched. `true pairs` has labels in place of clusters: the bound.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.regimes import layer_of
from polygrain import embed, load
from polygrain.collection.postprocessing.comparison import Comparison, choose, mean_of
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.stored import open_features
from polygrain.fisher.closed_form import basis_of, closed_form, of_views
from polygrain.fisher.scatter import within_clusters
from polygrain.retrieval import whitening
from polygrain.retrieval.metrics import UNLABELLED, collection_metrics
from polygrain.selection import seen
from polygrain.store.image_table import read_tables

AXES = 256  # of the whitenings


class Images(NamedTuple):
    """Of each image its output, task and class, whether it asks, and whether its class comes later; of some `views`."""

    outputs: np.ndarray
    tasks: np.ndarray
    kinds: np.ndarray
    asks: np.ndarray
    late: np.ndarray
    views: tuple[np.ndarray, np.ndarray]


def read(data: Path) -> Images:
    """The images of a profile; classes are counted over all tasks."""
    names = sorted(path.name for path in (data / "images").iterdir() if path.is_dir())
    collection, stored = read_tables(data / "images", names), open_features(data / "features", names)
    known, width = seen.read(data / "views"), stored.facts["widths"][0]
    rows, views = (of.rows[:][..., :width].astype(np.float32) for of in (stored, known.views[stored.facts["side"]]))
    tasks, labels = collection.tasks, collection.labels
    kinds = np.unique(tasks, return_inverse=True)[1] * (labels.max() + 1) + labels
    half = {task: np.median(np.unique(labels[tasks == task])) for task in names}
    late = labels > np.array([half[task] for task in tasks])
    views = unit_rows(views.reshape(-1, width)).reshape(views.shape)
    return Images(unit_rows(rows), tasks, kinds, collection.is_query, late, (known.sample.rows, views))


def layers(images: Images, fitted: np.ndarray) -> dict[str, whitening.Whitening | None]:
    """What each way puts behind the encoder, fitted to some of the images."""
    rows, (seen_of, views) = np.ascontiguousarray(images.outputs[fitted]), images.views
    basis = basis_of(rows, images.tasks[fitted])
    assert basis is not None
    of_images = of_views(basis, views[np.isin(seen_of, fitted)]) if len(views) else None
    found = layer_of(rows, images.tasks[fitted], basis, of_images)
    pairs = within_clusters(basis.turn(rows), images.kinds[fitted])
    return {
        **dict.fromkeys(("as it is", "centred")),
        "PCA-whitened": whitening.fit(rows, AXES),
        "half-whitened": whitening.fit(rows, AXES, "half"),
        "true pairs": closed_form(basis, [pairs], None),
        "closed form": found,
        "closed form, smoothed": found,
    }


def score(way: str, layer: whitening.Whitening | None, asked: tuple, offered: tuple) -> np.ndarray:
    """R-Precision of each query among what is offered; both are outputs of the encoder and their classes."""
    queries, images = (outputs if layer is None else whitening.apply(layer, outputs) for outputs, _ in (asked, offered))
    by = Comparison(() if way == "as it is" else mean_of(images))
    if way.endswith("smoothed"):
        by, _ = choose(images, mean=by.mean, front=lambda _: offered[0])
    searched = by.rows(images, lambda _: offered[0])
    return collection_metrics(by.query(queries), searched, asked[1], offered[1]).r_precision


def regimes(images: Images, foreign: np.ndarray) -> Iterator[tuple[str, np.ndarray, tuple]]:
    """Each regime by parts: the images that ask, and what they search, with its classes."""
    outputs, tasks, kinds, asks, late, _ = images
    for task in np.unique(tasks):
        own, searched = np.flatnonzero((tasks == task) & asks), (tasks == task) & ~asks
        yield "alone", own, (outputs[searched], kinds[searched])
        yield "later kinds", own[late[own]], (outputs[searched], kinds[searched])
    yield "other tasks", np.flatnonzero(asks), (outputs[~asks], kinds[~asks])
    if len(foreign):
        labels = np.concatenate([kinds[~asks], np.full(len(foreign), UNLABELLED)])
        yield "foreign", np.flatnonzero(asks), (np.concatenate([outputs[~asks], foreign]), labels)


def measure(images: Images, foreign: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """By regime and way the R-Precision of each task, in percent."""
    whole = layers(images, np.flatnonzero(~images.asks))
    early = layers(images, np.flatnonzero(~images.asks & ~images.late))
    found: dict[str, dict[str, list]] = {}
    for regime, rows, offered in regimes(images, foreign):
        for way, layer in (early if regime == "later kinds" else whole).items():
            scores, tasks = score(way, layer, (images.outputs[rows], images.kinds[rows]), offered), images.tasks[rows]
            means = [np.nanmean(scores[tasks == task]) for task in np.unique(tasks)]
            found.setdefault(regime, {}).setdefault(way, []).extend(means)
    return {regime: {way: 100 * np.array(of) for way, of in ways.items()} for regime, ways in found.items()}


def main(data: Path, folder: Path | None) -> None:
    images = read(data)
    foreign = embed(load(data / "resolution"), sorted(folder.iterdir())) if folder else images.outputs[:0]
    found = measure(images, foreign)
    print(f"| {images.asks.sum()} queries | " + " | ".join(found) + f" |\n|---|{'---:|' * len(found)}")
    for way in found["alone"]:
        cells = [f"{of[way].mean():.1f} ({(of[way] - of['as it is']).min():+.1f})" for of in found.values()]
        print(f"| {way} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "data", Path(sys.argv[2]) if len(sys.argv) > 2 else None)
