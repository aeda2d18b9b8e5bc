import json
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from polygrain.collection.postprocessing import strength
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.collection.postprocessing.strength import SETTINGS
from polygrain.compute.vectors import unit_rows
from polygrain.encoder.model import load
from polygrain.store import arrays
from polygrain.store.image_table import read_tables
from polygrain.store.mapped_rows import Reader
from stages import evaluation
from stages.evaluation import Params, attention_records, embed_fused, main, raw_pixels
from tests.helpers.small import TASKS, adapted, lists, write_encoder, write_features, write_images, write_model

PARAMS = Params(whitened_dim=8)
SMOOTHING = SETTINGS.model_copy(update={"neighbours": 4})
NAMES = ["k4", "k8"]


@pytest.fixture(autouse=True, scope="module")
def few_images():
    """Are enough to smooth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strength, "FEWEST_SMOOTHED", 20)
        patch.setattr(strength, "DEPTH", 5)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    write_model(adapted(encoder, NAMES, 0), folder / "average")
    run(images, encoder, folder / "encoder_out", "encoder")
    run(images, folder / "average", folder / "average_out", "average")
    return folder


def run(images, folder, output, model, **changes):
    """With the features of another network, from which nothing follows."""
    params, features = PARAMS.model_copy(update=changes), output.with_name(f"{output.name}_features")
    write_features(features, images)
    return main(
        images, folder, features, output, model=model, params=params, smoothing=SMOOTHING, alike={}, lists=lists()
    )


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def plain_r_precision(embeddings, labels):
    """For every query the share of relevant images among the R nearest others, R being how many there are."""
    values = []
    for i, query in enumerate(embeddings):
        others = [j for j in range(len(labels)) if j != i]
        relevant = sum(labels[j] == labels[i] for j in others)
        ranked = sorted(others, key=lambda j: (-float(query @ embeddings[j]), j))
        values.append(sum(labels[j] == labels[i] for j in ranked[:relevant]) / relevant)
    return np.array(values)


def embed_test(world, collection, rows):
    pixels = np.concatenate([arrays.open(world / "images" / task / "pixels.zarr")[:] for task in TASKS])[rows]
    return load(world / "encoder")(torch.from_numpy(pixels).permute(0, 3, 1, 2)).numpy()


def test_main__the_collection_equals_the_plain_metric_per_task(world):
    folder, collection = world / "encoder_out", read_tables(world / "images", list(TASKS))
    smoothing = read(folder, "smoothing")
    for name in ("collection", "collection_centred", "smoothed"):
        metrics, table = read(folder, name), []
        if name != "collection_centred":
            table = pq.read_table(folder / f"{name}_queries.parquet").to_pylist()
        for task in TASKS:
            asked, searched = (
                np.flatnonzero((collection.tasks == task) & part)
                for part in (collection.is_query, ~collection.is_query)
            )
            queries, rows = (embed_test(world, collection, part) for part in (asked, searched))
            if name != "collection":
                mean = tuple(rows.mean(0).tolist())
                queries = unit_rows(queries - np.array(mean, np.float32))
                by = Smoothing(**smoothing[task]) if name == "smoothed" else Smoothing()
                rows = Comparison(mean, by).rows(rows)
            cosines, values = queries @ rows.T, []
            for label, scores in zip(collection.labels[asked], cosines, strict=True):
                relevant = collection.labels[searched] == label
                values.append(relevant[np.argsort(-scores, kind="stable")[: relevant.sum()]].mean())
            assert metrics[task]["r_precision"] == pytest.approx(np.mean(values), abs=1e-6)
            assert metrics[task]["queries"] == len(asked)
            of_task = [row for row in table if row["task"] == task]
            assert [row["row"] for row in of_task] == (collection.rows[asked].tolist() if table else [])
            assert all(set(row["nearest"]) <= set(collection.rows[searched].tolist()) for row in of_task)
    assert not (world / "average_out/smoothed.json").exists() and (world / "average_out/collection.json").exists()


def test_main__equals_the_plain_metric_per_task(world):
    folder, collection = world / "encoder_out", read_tables(world / "images", list(TASKS))
    metrics, queries = read(folder, "metrics"), pq.read_table(folder / "queries.parquet").to_pylist()
    assert list(metrics) == list(TASKS) == list(read(folder, "whitened"))
    for task in TASKS:
        rows = np.flatnonzero((collection.tasks == task) & ~collection.is_train)
        expected = plain_r_precision(embed_test(world, collection, rows), collection.labels[rows])
        assert metrics[task]["r_precision"] == pytest.approx(expected.mean(), abs=1e-6)
        assert set(metrics[task]) == {"r_precision", "map_at_r", "recall_at_1", "queries"}
        assert metrics[task]["queries"] == len(rows) == 24
        of_task = [query for query in queries if query["task"] == task]
        np.testing.assert_allclose([query["r_precision"] for query in of_task], expected, atol=1e-6)
        assert all(query["row"] not in query["nearest"] for query in of_task)
        assert {row for query in of_task for row in query["nearest"]} <= set(collection.rows[rows].tolist())
    assert not (folder / "attention.parquet").exists()


def test_main__the_average_has_equal_weights(world):
    rows = pq.read_table(world / "average_out/attention.parquet").to_pylist()
    assert len(rows) == len(TASKS) * 2 * len(NAMES)
    assert {row["adaptor"] for row in rows} == set(NAMES) and all(row["weight"] == 0.5 for row in rows)
    assert all(row["entropy"] == pytest.approx(1) for row in rows)


def test_attention_records__entropy_is_the_mean_over_images(world):
    model = adapted(world / "encoder", NAMES, 0, fusion="attention")
    pixels, rows = arrays.open(world / "images/dots/pixels.zarr"), np.arange(6)
    embeddings, weights = embed_fused(model, pixels, rows, "fusion")
    expected = model.with_attention(torch.from_numpy(pixels[:6]).permute(0, 3, 1, 2))
    for found, one in zip((embeddings, weights), expected, strict=True):
        np.testing.assert_allclose(found, one, atol=1e-6)
    records = attention_records(NAMES, weights, np.array(["dots"] * 4 + ["other"] * 2))
    for record in records:
        own, layer = weights[:4] if record["task"] == "dots" else weights[4:], record["layer"]
        by_hand = [-sum(w * np.log(w) for w in image[layer] if w > 0) / np.log(2) for image in own]
        assert record["entropy"] == pytest.approx(np.mean(by_hand), abs=1e-5)
        assert record["weight"] == pytest.approx(own[:, layer, NAMES.index(record["adaptor"])].mean(), abs=1e-5)
    assert min(record["entropy"] for record in records) < 0.99


@pytest.mark.parametrize("side", [20, 64])
def test_raw_pixels__equal_each_image_scaled_and_centred(monkeypatch, side):
    monkeypatch.setattr(evaluation, "BLOCK_VALUES", 2 * side * side * 3)
    squares, rows = np.random.default_rng(0).integers(0, 256, (9, side, side, 3), dtype=np.uint8), np.array([8, 0, 3])
    vectors = raw_pixels(Reader(squares.shape[1:], squares.dtype, [squares]), rows)
    # Halved by a triangle that is two pixels of the result wide.
    places = np.abs(np.arange(64) + 0.5 - 2 * (np.arange(32)[:, None] + 0.5))
    weights = np.maximum(0, 1 - places / 2) / np.maximum(0, 1 - places / 2).sum(1, keepdims=True)
    for square, vector in zip(squares[rows], vectors, strict=True):
        small = square if side == 20 else np.einsum("ij,kl,jlc->ikc", weights, weights, square)
        centred = small.ravel() - small.mean()
        np.testing.assert_allclose(vector, centred / np.linalg.norm(centred), atol=4e-4)


def test_spoken__each_protocol_is_named_and_what_is_not_smoothed_is_not_called_so():
    scores = {"collection": 0.464, "smoothed": 0.5, "metrics": 0.912}
    results = {name: {"dots": {"r_precision": value}} for name, value in scores.items()}
    for smoothed_by, expected in ((0.9, ["50.0", "46.4", "91.2"]), (0.0, ["46.4", "91.2"])):
        results["smoothing"] = {"dots": {"strength": smoothed_by}}
        assert re.findall(r"dots ([\d.]+)%", evaluation.spoken(results)) == expected


@pytest.mark.parametrize("model", ["encoder", "average"])
def test_main__unlabelled_images_give_no_metrics(world, tmp_path, model):
    images = write_images(tmp_path / "images", labelled=False)
    assert "no labelled test images" in run(images, world / model, tmp_path / "out", model)
    assert read(tmp_path / "out", "metrics") == read(tmp_path / "out", "whitened") == {}
    assert pq.read_table(tmp_path / "out/queries.parquet").num_rows == 0


def test_main__images_that_all_look_alike_are_not_whitened(world, tmp_path):
    images = write_images(tmp_path / "images")
    for task in TASKS:
        shape = arrays.open(images / task / "pixels.zarr").shape
        shutil.rmtree(images / task / "pixels.zarr")
        arrays.write(images / task / "pixels.zarr", np.full(shape, 7, np.uint8))
    run(images, world / "encoder", tmp_path / "out", "encoder")
    assert read(tmp_path / "out", "whitened").keys() == read(tmp_path / "out", "metrics").keys() == {*TASKS}
