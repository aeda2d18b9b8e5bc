"""What one pretraining run has taught the encoder: every measure before and after, for each task with test labels.

Reads   images, mpcl_encoder/<run> (the trained encoder and its start)
Writes  metrics.json   {start | trained: {task: {r_precision, knn, linear, fine_<share>..., alignment, uniformity,
                       effective_rank, images}}}; fractions, but the last four

R-Precision needs no fitting: test images query each other. Classifiers are fitted on one part of the labelled images
and tested on another (`core/mpcl/probe.py`); `fine_0.01` trains the whole encoder with 1 % of the labels, one or more
a class.
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
from polygrain.store.collection import Collection, open_pixels, read_share, read_table, read_tables
from polygrain.training import checkpoint

PAIRS = 1024  # uniformity looks at every pair of so many images, as many as its authors' batches hold
TOP = 5  # the second accuracy of few labels, where there are more classes


class Params(schema.Section):
    tasks: list[schema.Name] | None = Field(description="null: every task that has labels")
    precision: device.Precision
    batch: schema.BatchSize = Field(description="images per forward pass")
    neighbours: schema.Count = Field(description="nearest images that vote in k-NN")
    temperature: schema.Temperature = Field(description="of their votes, exp(cosine / temperature)")
    view: Augmentation = Field(description="alignment compares two such views of an image")
    linear: Recipe = Field(description="a classifier on the frozen encoder")
    fine_tuning: Recipe | None = Field(description="the encoder trains with its classifier; null leaves it out")
    shares: list[schema.Share] = Field(
        max_length=100, description="of the labelled images of each class, one fine-tuning each"
    )

    def fits(self, lists: Lists) -> None:
        """ValueError for a task that params.yaml does not list."""
        if unknown := set(self.tasks or []) - set(lists.tasks):
            raise ValueError(
                f"mpcl_probe.tasks names {', '.join(sorted(unknown))}; known tasks: {', '.join(lists.tasks)}"
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
    # Evenly over all of them, which are in the order of their classes.
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), PAIRS)).round().astype(int)]
    generator = torch.Generator().manual_seed(0)
    first, second = (probe.embed(network, pixels, rows, params.batch, (params.view, generator)) for _ in range(2))
    found = {"alignment": alignment(first, second), "uniformity": uniformity(first)}
    found["effective_rank"] = effective_rank(first)
    return {name: float(value) for name, value in found.items()}


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


def probe_task(
    folder: Path,
    pixels: arrays.Reader,
    collection: Collection,
    task: str,
    params: Params,
    seed: int,
    work: Path,
    few: Shares | None = None,
) -> dict[str, float | int]:
    """All measures of one encoder on one task; `few` has the rows of shares that lists name, the others are drawn."""
    network = probe.placed(trainable.load(folder), params.precision)
    rows = np.flatnonzero(collection.tasks == task)
    labels, is_train = collection.labels[rows], collection.is_train[rows]
    test = np.flatnonzero(~is_train & (labels >= 0))
    known, asked = probe.probe_split(labels, is_train)
    _, classes = np.unique(labels, return_inverse=True)
    count = int(classes.max()) + 1
    seen = probe.embed(network, pixels, rows, params.batch)
    vectors = seen.cpu().numpy()
    found: dict[str, float | int] = {"images": len(asked), "r_precision": zero_shot(vectors[test], labels[test])}
    found["knn"] = probe.knn_accuracy(
        vectors[known], classes[known], vectors[asked], classes[asked], params.neighbours, params.temperature
    )
    if params.linear.augmentation is None:
        targets = torch.from_numpy(classes[known]).to(seen.device)
        classifier = probe.fit_linear(seen[known], targets, count, params.linear, seed)
    else:
        classifier = probe.fine_tune(
            network, pixels, rows[known], classes[known], count, params.linear, seed, work / "linear"
        )
    found["linear"] = probe.accuracy(classifier, seen[asked], classes[asked])
    for share in params.shares if params.fine_tuning else []:
        listed = (few or {}).get(share)
        chosen = known[probe.draw_share(classes[known], share, seed)] if listed is None else listed
        tuned = probe.placed(trainable.load(folder), params.precision)
        classifier = probe.fine_tune(
            tuned, pixels, rows[chosen], classes[chosen], count, params.fine_tuning, seed, work / f"fine_{share:g}"
        )
        features = probe.embed(tuned, pixels, rows[asked], params.batch)
        found[f"fine_{share:g}"] = probe.accuracy(classifier, features, classes[asked])
        if len(np.unique(classes[known])) > TOP:
            found[f"fine_{share:g}_top{TOP}"] = probe.accuracy(classifier, features, classes[asked], TOP)
    return found | spread_of_views(network, pixels, rows[test], params)


def main(images: Path, encoder: Path, output: Path, *, run: str, params: Params, lists: Lists, seed: int) -> str:
    # Dozens of small fits: a line for each of their epochs would bury the rest; progress speaks for the long ones.
    logging.getLogger("polygrain.training.loop").setLevel(logging.WARNING)
    tasks = list(lists.tasks)
    params.fits(lists)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)
    asked = set(collection.tasks[~collection.is_train & (collection.labels >= 0)])
    labelled = [task for task in params.tasks or tasks if task in asked]
    few = {task: read_shares(images / task, params) for task in labelled}
    metrics: dict[str, dict] = {"start": {}, "trained": {}}
    works = []
    for name, folder in (("start", encoder / "start"), ("trained", encoder)):
        weights = checkpoint.digest(folder / "weights.safetensors")
        for task in labelled:
            work = checkpoint.work_folder("mpcl_probe", run, name, task, params, seed, pixels.digest, weights)
            metrics[name][task] = probe_task(folder, pixels, collection, task, params, seed, work, few[task])
            works.append(work)
    with outputs.folder(output) as result:
        (result / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    for work in works:
        checkpoint.clear(work)
    means = [np.mean([100 * values["linear"] for values in part.values()]) for part in metrics.values() if part]
    if not means:
        return "no task has labelled test images"
    return "linear probe " + " to ".join(f"{mean:.1f} %" for mean in means)


if __name__ == "__main__":
    command.run(main, Params)
