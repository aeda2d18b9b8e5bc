"""The retrieval metrics of one model, by two protocols.

`classes`: every image of the second half of the classes queries all others of its task, then those of all tasks.
`collection`: the images drawn as queries search all other images of their task, of all classes.

A model that says how its tasks are compared is compared so; by the protocol `classes` less the mean of the searched
images, which are others than those that trained. The other models are measured centred, too.

Reads   images, the folder of one model (images themselves for `pixels`), features
Writes  metrics.json, whitened.json   {task: {r_precision, map_at_r, recall_at_1, queries}}, as it is and whitened
        centred.json                  of a model that says nothing of means: less the mean of the searched images
        queries.parquet               one row per test image: its metrics and its nearest images
        collection.json, collection_centred.json, smoothed.json   the same of the protocol `collection`, and with
                                      smoothed images (collection/postprocessing/strength.py)
        collection_queries.parquet, smoothed_queries.parquet   one row per query of these
        ranked.parquet, collection_ranked.parquet, smoothed_ranked.parquet   their ranked lists, a row per place: as
                                      many images as are relevant, and their cosines
        smoothing.json                {task: the smoothing}
        attention.parquet             fusions only: mean weight per task, layer and adaptor, and beside it the mean
                                      entropy of the layer's weights, 1 where all are equal
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field
from torch.nn.functional import interpolate, normalize

from polygrain.collection.postprocessing.comparison import PLAIN, Comparison, Front, choose, mean_of
from polygrain.collection.postprocessing.comparisons import Comparisons
from polygrain.collection.postprocessing.strength import SmoothingSettings
from polygrain.compute import device
from polygrain.compute.blocks import blocks_within
from polygrain.compute.vectors import unit_rows
from polygrain.config import schema
from polygrain.config.lists import Lists
from polygrain.encoder.extract import embed as embed_anew
from polygrain.encoder.model import Model, load
from polygrain.encoder.stored import embed, open_features
from polygrain.retrieval import whitening
from polygrain.retrieval.metrics import QueryMetrics, Ranked, collection_metrics, query_metrics
from polygrain.retrieval.ranking_metrics import NAMES
from polygrain.runner import command, outputs
from polygrain.store import arrays
from polygrain.store.image_table import ImageTable, open_pixels, read_tables
from polygrain.store.mapped_rows import Subset

NEAREST = 5
# Stages whose models have their collections smoothed, too: the encoder in all its forms, and the one to use.
SMOOTHED = {"encoder", "resolution", "choice"}
RANKED = 5_000_000  # places of a task's ranked lists, at most: 60 MB
WORDS = {
    "smoothed": "new pictures in the smoothed collection",
    "collection": "new pictures in the collection",
    "metrics": "test images among themselves",
}
# Side of the images that are vectors themselves, px; and values read and scaled for them at once, 64 MiB of float32.
SIDE, BLOCK_VALUES = 32, 2**24


class Params(schema.Section):
    whitened_dim: schema.Width = Field(
        description="dimensions kept by PCA-whitening (fewer where the data allow fewer)"
    )


def raw_pixels(pixels: arrays.Reader, rows: np.ndarray) -> np.ndarray:
    """The images, scaled to 32 px at most, as vectors, each centred and of unit length: a baseline without any network.

    Float16, 6 KiB an image at most, whatever its side: the metrics of 100,000 take 2 GB.
    """
    side = min(SIDE, pixels.shape[1])
    vectors = np.empty((len(rows), 3 * side**2), np.float16)
    for part in blocks_within(len(rows), math.prod(pixels.shape[1:]), BLOCK_VALUES):
        images = torch.from_numpy(pixels[rows[part]]).movedim(3, 1).float()
        small = interpolate(images, (side, side), mode="bilinear", antialias=True).movedim(1, 3).flatten(1)
        vectors[part] = normalize(small - small.mean(1, keepdim=True)).numpy()
    return vectors


def means(scores: QueryMetrics) -> dict[str, float | int]:
    """The mean metrics of the queries that have a relevant image, and their number; {} where none has."""
    counted = ~np.isnan(scores.r_precision)
    if not counted.any():
        return {}
    values = {name: float(getattr(scores, name)[counted].mean(dtype=np.float64)) for name in NAMES}
    return values | {"queries": int(counted.sum())}


def taken(embeddings: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some of the embeddings, in float32 and of unit length; no other copy of them is made."""
    result = np.empty((len(rows), embeddings.shape[1]), np.float32)
    for part in blocks_within(*result.shape, BLOCK_VALUES):
        result[part] = unit_rows(embeddings[rows[part]].astype(np.float32))
    return result


class Evaluation(NamedTuple):
    """The files of an evaluation, metrics as JSON and `queries` as Parquet; by task the queries and searched images.

    `parts` are places in the embeddings; where the two are one, each image asks all others. `comparisons` say how a
    task is compared, the others as they are; `is_own`: by the mean of the searched images in place of theirs.
    """

    written: str
    queries: str | None
    embeddings: np.ndarray
    collection: ImageTable
    parts: dict[str, tuple[np.ndarray, np.ndarray]]
    comparisons: Mapping[str, Comparison] = MappingProxyType({})
    front: Front | None = None
    is_own: bool = False

    def measure(self) -> tuple[dict, pa.Table, pa.Table]:
        """Metrics of each task, one row per query, and the ranked lists where there is a file of `queries`.

        Queries without a relevant image are NaN and not averaged.
        """
        metrics, tables, labels = {}, [QUERIES.empty_table()], self.collection.labels
        lists = [RANKS.empty_table()]
        for task, (asked, searched) in self.parts.items():
            comparison = self.comparisons.get(task, PLAIN)
            queries = taken(self.embeddings, asked)
            images = queries if asked is searched else taken(self.embeddings, searched)
            if self.is_own:
                comparison = replace(comparison, mean=mean_of(images))
            queries, images = comparison.query(queries), comparison.rows(images, self.front)
            ranks = max(1, RANKED // len(asked)) if self.queries else 0
            if asked is searched:
                scores = query_metrics(queries, labels[asked], min(NEAREST, len(asked) - 1), ranks)
            else:
                nearest = min(NEAREST, len(searched))
                scores = collection_metrics(queries, images, labels[asked], labels[searched], nearest, ranks)
            if values := means(scores):
                metrics[task] = values
            own, gallery = self.collection.rows[asked], self.collection.rows[searched]
            tables.append(query_table(task, own, scores, gallery))
            lists.append(ranked_table(task, own, scores.ranked, gallery))
        return metrics, pa.concat_tables(tables).combine_chunks(), pa.concat_tables(lists)


def all_of(collection: ImageTable, counted: np.ndarray | bool = True) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By task all images, or those that are `counted`, which ask each other; tasks without any are left out."""
    own_of = {task: np.flatnonzero((collection.tasks == task) & counted) for task in dict.fromkeys(collection.tasks)}
    return {task: (own, own) for task, own in own_of.items() if len(own)}


def drawn_of(collection: ImageTable) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By task the images that were drawn as queries, and the others; tasks without either are left out."""
    is_query, own_of = collection.is_query, all_of(collection)
    parts = {task: (own[is_query[own]], own[~is_query[own]]) for task, (own, _) in own_of.items()}
    return {task: part for task, part in parts.items() if all(map(len, part))}


def query_table(task: str, own: np.ndarray, scores: QueryMetrics, gallery: np.ndarray) -> pa.Table:
    """One row per query of a task; columns at once, for there may be millions.

    The queries have the numbers `own`, the images that are searched those of `gallery`.
    """
    n, nearest = scores.nearest.shape
    offsets = pa.array(np.arange(n + 1) * nearest, pa.int32())
    columns = [pa.array([task], pa.string()).take(pa.array(np.zeros(n, np.int64))), own.astype(np.int64)]
    columns += [getattr(scores, name).astype(np.float32) for name in NAMES]
    columns.append(pa.ListArray.from_arrays(offsets, gallery[scores.nearest].ravel().astype(np.int64)))
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=QUERIES)


def ranked_table(task: str, own: np.ndarray, ranked: Ranked, gallery: np.ndarray) -> pa.Table:
    """One row per place of the ranked lists of a task; rows and gallery as in `query_table`."""
    starts = np.cumsum(ranked.lengths) - ranked.lengths
    ranks = np.arange(len(ranked.images)) - np.repeat(starts, ranked.lengths) + 1
    columns = [np.repeat(own, ranked.lengths), ranks, gallery[ranked.images], ranked.cosines]
    tasks = pa.array([task]).take(pa.array(np.zeros(len(ranks), np.int64)))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, list(RANKS)[1:], strict=True)]
    return pa.Table.from_arrays([tasks, *arrays], schema=RANKS)


def embed_fused(
    model: Model, pixels: arrays.Reader, rows: np.ndarray, description: str
) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings `row dim` of a fusion, and its weights `row layer adaptor`, by one pass."""

    def side_by_side(images: torch.Tensor) -> torch.Tensor:
        embeddings, weights = model.with_attention(images)
        return torch.cat([embeddings, weights.flatten(1)], 1)

    both = embed_anew(model, pixels, rows, *device.inference(model.config.size), description, side_by_side)
    return both[:, : model.dim], both[:, model.dim :].reshape(len(rows), len(model.adaptors), -1)


def attention_records(names: list[str], weights: np.ndarray, tasks: np.ndarray) -> list[dict]:
    """The mean weight of every adaptor in every layer, for each task's images, with the layer's mean entropy.

    An entropy is a share of what equal weights have: 1 is the average fusion, 0 a choice of one adaptor.
    """
    records = []
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    entropies = -(weights * logs).sum(2) / np.log(len(names))
    for task in dict.fromkeys(tasks):
        entropy, mean = (values[tasks == task].mean(0, dtype=np.float64) for values in (entropies, weights))
        for layer, of_layer in enumerate(mean):
            for name, weight in zip(names, of_layer, strict=True):
                record = {"task": task, "layer": layer, "adaptor": name, "weight": float(weight)}
                records.append(record | {"entropy": float(entropy[layer])})
    return records


QUERIES = pa.schema(
    [("task", pa.string()), ("row", pa.int64())]
    + [(name, pa.float32()) for name in NAMES]
    + [("nearest", pa.list_(pa.int64()))]
)
RANKS = pa.schema(
    [("task", pa.string()), ("query", pa.int32()), ("rank", pa.int32()), ("row", pa.int32()), ("score", pa.float32())]
)


def main(
    images: Path,
    folder: Path,
    features: Path,
    output: Path,
    *,
    model: str,
    params: Params,
    smoothing: SmoothingSettings,
    alike: dict[str, int],
    lists: Lists,
) -> str:
    tasks = list(lists.tasks)
    collection, pixels = read_tables(images, tasks), open_pixels(images, tasks)
    rows, test = np.arange(len(collection.tasks)), np.flatnonzero(collection.is_test)
    network = None if model == "pixels" else load(folder).to(device.best())
    is_fused = bool(network is not None and network.adaptors and network.adaptors[0].count > 1)
    front, known = (None, Comparisons()) if network is None else (network.in_front, Comparisons.read(folder))
    if network is None:
        embeddings = raw_pixels(pixels, rows)
    elif is_fused:
        embeddings, attention = embed_fused(network, pixels, rows, model)
    else:
        embeddings = embed(network, open_features(features, tasks), pixels, rows, model)
    tested, drawn = collection.some(test), drawn_of(collection)
    whitened = embeddings[test]
    # Images that all look alike have no axes to scale.
    if len(test) and (fitted := whitening.fit_if_varied(Subset(embeddings, collection.train), params.whitened_dim)):
        whitened = whitening.apply(fitted, whitened)
    classes = all_of(collection, collection.is_test)
    says_means = bool(known.tasks)
    plain = {task: one.unsmoothed() for task, one in known.tasks.items()}
    evaluations = [
        Evaluation("metrics", "queries", embeddings, collection, classes, is_own=says_means),
        Evaluation("whitened", None, whitened, tested, all_of(tested)),
        Evaluation("collection", "collection_queries", embeddings, collection, drawn, plain),
    ]
    if network is not None and not says_means:
        evaluations += [
            Evaluation("centred", None, embeddings, collection, classes, is_own=True),
            Evaluation("collection_centred", None, embeddings, collection, drawn, is_own=True),
        ]
    results: dict[str, dict] = {}
    if SMOOTHED & {*folder.parts[-2:]}:
        chosen = known.tasks or {
            task: choose(taken(embeddings, searched), alike.get(task), smoothing, front=front)[0]
            for task, (_, searched) in drawn.items()
        }
        results["smoothing"] = {task: asdict(chosen[task].smoothing) for task in drawn}
        evaluations.append(Evaluation("smoothed", "smoothed_queries", embeddings, collection, drawn, chosen, front))
    with outputs.folder(output) as target:
        for evaluation in evaluations:
            results[evaluation.written], table, ranked = evaluation.measure()
            if evaluation.queries:
                pq.write_table(table, target / f"{evaluation.queries}.parquet")
                pq.write_table(ranked, target / f"{evaluation.queries.replace('queries', 'ranked')}.parquet")
        for name, values in results.items():
            (target / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n")
        if is_fused and len(test):
            records = attention_records(network.config.adaptors.names, attention[test], tested.tasks)
            pq.write_table(pa.Table.from_pylist(records), target / "attention.parquet")
    return spoken(results)


def spoken(results: Mapping[str, dict]) -> str:
    """R-Precision by each protocol, named."""
    is_smoothed = any(one["strength"] for one in results.get("smoothing", {}).values())
    said = [
        f"{words}: " + ", ".join(f"{task} {of['r_precision']:.1%}" for task, of in results[name].items())
        for name, words in WORDS.items()
        if results.get(name) and (is_smoothed or name != "smoothed")
    ]
    return f"R-Precision of {'; of '.join(said)}" if said else "R-Precision: no labelled test images"


if __name__ == "__main__":
    command.run(main, Params, smoothing="gallery.smoothing", alike="choice.alike")
