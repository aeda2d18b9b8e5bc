"""The effect of one pretraining run on the encoder: every measure before and after, for each task with test labels.

Reads   images, mpcl_encoder/<run> (the trained encoder and its start)
Writes  metrics.json   {start | trained: {task: {r_precision, linear, fine_<share>..., alignment, uniformity,
                       effective_rank, images}}}; fractions, but the last four

R-Precision needs no fitting: test images query each other. Classifiers are fitted on one part of the labelled images
and tested on another (`probe_split`); `fine_0.01` trains the encoder, too, with 1 % of each class's labels.
"""

import json
import logging
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, field_validator

from polygrain.compute import device
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.views import Augmentation
from polygrain.losses.alignment_uniformity import alignment, uniformity
from polygrain.losses.effective_rank import effective_rank
from polygrain.mpcl import probe, trainable
from polygrain.mpcl.probe import Recipe
from polygrain.mpcl.trainable import TrainableEncoder
from polygrain.retrieval.metrics import query_metrics
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import ImageTable, open_pixels, read_share, read_table, read_tables
from polygrain.training import checkpoint

PAIRS = 1024  # images of the pairs of uniformity, as many as in its authors' batches
BATCH = 256  # images per forward pass
TOP = 5  # the second accuracy of few labels, where there are more classes


class Params(schema.Section):
    precision: device.Precision
    view: Augmentation = Field(description="alignment compares two such views of an image")
    linear: Recipe = Field(description="a classifier on the frozen encoder")
    fine_tuning: Recipe | None = Field(description="the encoder trains with its classifier; null leaves it out")
    shares: list[schema.Share] = Field(
        max_length=100, description="of the labelled images of each class, one fine-tuning each"
    )

    @field_validator("linear")
    @classmethod
    def leaves_the_encoder(cls, linear: Recipe) -> Recipe:
        if linear.encoder_rate:
            raise ValueError(
                f"encoder_rate is {linear.encoder_rate}; a linear probe leaves the encoder as it is: 0 is allowed, "
                "and `fine_tuning` trains it"
            )
        return linear


Shares = dict[float, np.ndarray]  # rows within a task


def spread_of_views(
    network: TrainableEncoder, pixels: arrays.Reader, rows: np.ndarray, params: Params
) -> dict[str, float]:
    """Alignment, uniformity and effective rank of the features of two random views."""
    # Rows are in the order of their classes, so these are of all of them.
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), PAIRS)).round().astype(int)]
    generator = torch.Generator().manual_seed(0)
    first, second = (probe.embed(network, pixels, rows, BATCH, (params.view, generator)) for _ in range(2))
    values = {"alignment": alignment(first, second), "uniformity": uniformity(first)}
    values["effective_rank"] = effective_rank(first)
    return {name: float(value) for name, value in values.items()}


def zero_shot(features: np.ndarray, labels: np.ndarray) -> float:
    """Mean R-Precision of images that query each other; NaN where none has a partner of its class."""
    scores = query_metrics(features, labels, 0).r_precision
    return float(np.nanmean(scores)) if np.isfinite(scores).any() else float("nan")


def read_shares(images: Path, params: Params) -> Shares:
    """The rows within one task of each share that a list beside its images names (`images.listed_shares`)."""
    lists = {share: read_share(images, share) for share in params.shares}
    if all(paths is None for paths in lists.values()):
        return {}
    stored = read_table(images)["path"].to_pylist()
    return {share: probe.find_listed(stored, paths) for share, paths in lists.items() if paths is not None}


def labels_of(collection: ImageTable, task: str) -> tuple[np.ndarray, np.ndarray]:
    """The labels of a task's images, and which train."""
    own = collection.tasks == task
    return collection.labels[own], collection.is_train[own]


def probe_task(
    folder: Path,
    pixels: arrays.Reader,
    collection: ImageTable,
    task: str,
    params: Params,
    seed: int,
    work: Path,
    listed: Shares,
) -> dict[str, float | int]:
    """All measures of one encoder on one task; shares that are not `listed` are drawn."""
    where = device.best()
    network = trainable.load(folder, params.precision).to(where)
    rows = np.flatnonzero(collection.tasks == task)
    labels, is_train = labels_of(collection, task)
    queries = np.flatnonzero(~is_train & (labels >= 0))
    train, test = probe.probe_split(labels, is_train)
    classes = np.unique(labels, return_inverse=True)[1]
    count = int(classes.max()) + 1
    features = probe.embed(network, pixels, rows, BATCH)
    shot = zero_shot(features[queries].cpu().numpy(), labels[queries])
    measures: dict[str, float | int] = {"images": len(test), "r_precision": shot}
    if params.linear.augmentation is None:
        targets = torch.from_numpy(classes[train]).to(where)
        classifier = probe.fit_linear(features[train], targets, count, params.linear, seed)
    else:
        given = rows[train], classes[train], count, params.linear, seed
        classifier = probe.fine_tune(network, pixels, *given, work / "linear")
    measures["linear"] = probe.accuracy(classifier, features[test], classes[test])
    for share in params.shares if params.fine_tuning else []:
        few = listed[share] if share in listed else train[probe.draw_share(classes[train], share, seed)]
        tuned = trainable.load(folder, params.precision).to(where)
        given = rows[few], classes[few], count, params.fine_tuning, seed
        classifier = probe.fine_tune(tuned, pixels, *given, work / f"fine_{share:g}")
        tuned_features = probe.embed(tuned, pixels, rows[test], BATCH)
        measures[f"fine_{share:g}"] = probe.accuracy(classifier, tuned_features, classes[test])
        if len(np.unique(classes[train])) > TOP:
            measures[f"fine_{share:g}_top{TOP}"] = probe.accuracy(classifier, tuned_features, classes[test], TOP)
    return measures | spread_of_views(network, pixels, rows[queries], params)


def main(images: Path, encoder: Path, output: Path, *, run: str, params: Params, lists: Lists, seed: int) -> str:
    # A line for each epoch of dozens of small fits would bury the rest.
    logging.getLogger("polygrain.training.loop").setLevel(logging.WARNING)
    tasks = list(lists.tasks)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)
    labelled = [task for task in tasks if len(probe.probe_split(*labels_of(collection, task))[1])]
    listed = {task: read_shares(images / task, params) for task in labelled}
    metrics: dict[str, dict] = {"start": {}, "trained": {}}
    reads = [encoder, *(images / task for task in tasks)]
    work = checkpoint.work_folder("mpcl_probe", run, [params, seed], reads)
    for name, folder in (("start", encoder / "start"), ("trained", encoder)):
        for task in labelled:
            place = work / name / task
            metrics[name][task] = probe_task(folder, pixels, collection, task, params, seed, place, listed[task])
    with outputs.folder(output) as result:
        (result / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    means = [np.mean([100 * values["linear"] for values in part.values()]) for part in metrics.values() if part]
    if not means:
        return "no task has labelled test images"
    return "linear probe " + " to ".join(f"{mean:.1f} %" for mean in means)


if __name__ == "__main__":
    command.run(main, Params)
