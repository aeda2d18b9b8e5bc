import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from polygrain.encoder.model import load
from polygrain.store import arrays
from polygrain.store.collection import Collection, read_tables
from stages import fusion
from stages.evaluation import Params, evaluate_together, main, measure_attention, raw_pixels
from tests.helpers.small import TASKS, lists, write_encoder, write_images
from tests.test_fusion import NAMES, world  # noqa: F401

PARAMS = Params(whitened_dim=8, precision="float32", batch=16, random_draws=2)


def plain_r_precision(embeddings, labels):
    """For every query the share of relevant images among the R nearest others, R being how many there are."""
    values = []
    for i, query in enumerate(embeddings):
        others = [j for j in range(len(labels)) if j != i]
        relevant = sum(labels[j] == labels[i] for j in others)
        ranked = sorted(others, key=lambda j: (-float(query @ embeddings[j]), j))
        values.append(sum(labels[j] == labels[i] for j in ranked[:relevant]) / relevant)
    return np.array(values)


def test_main__equals_the_plain_metric_per_task(tmp_path):
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    main(images, encoder, tmp_path / "out", model="encoder", params=PARAMS, lists=lists())
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert list(metrics) == list(TASKS)
    queries = pq.read_table(tmp_path / "out" / "queries.parquet").to_pylist()
    collection, model = read_tables(images, list(TASKS)), load(encoder)
    for task in TASKS:
        rows = np.flatnonzero((collection.tasks == task) & ~collection.is_train)
        pixels = arrays.open(images / task / "pixels.zarr")[collection.rows[rows]]
        embeddings = model(torch.from_numpy(pixels).permute(0, 3, 1, 2)).numpy()
        expected = plain_r_precision(embeddings, collection.labels[rows])
        assert metrics[task]["r_precision"] == pytest.approx(expected.mean(), abs=1e-6)
        assert set(metrics[task]) == {"r_precision", "map_at_r", "recall_at_1", "queries"}
        assert metrics[task]["queries"] == len(rows) == 24
        mine = [query for query in queries if query["task"] == task]
        np.testing.assert_allclose([query["r_precision"] for query in mine], expected, atol=1e-6)
        assert all(query["row"] not in query["nearest"] for query in mine)
        assert {row for query in mine for row in query["nearest"]} <= set(collection.rows[rows].tolist())
    assert set(json.loads((tmp_path / "out" / "whitened.json").read_text())) == set(TASKS)
    assert not (tmp_path / "out" / "attention.parquet").exists()
    assert not (tmp_path / "out" / "random.json").exists()


def test_main__one_gallery_equals_the_plain_metric_over_all_tasks(tmp_path):
    images, encoder = write_images(tmp_path / "images"), write_encoder(tmp_path / "encoder")
    main(images, encoder, tmp_path / "out", model="encoder", params=PARAMS, lists=lists())
    alone, shared = (json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in ("metrics", "shared"))
    collection, model = read_tables(images, list(TASKS)), load(encoder)
    rows = np.flatnonzero(~collection.is_train)
    pixels = np.concatenate([arrays.open(images / task / "pixels.zarr")[:] for task in TASKS])[rows]
    embeddings = model(torch.from_numpy(pixels).permute(0, 3, 1, 2)).numpy()
    # The labels of both tasks are the same numbers; a class is a pair of task and number.
    expected = plain_r_precision(embeddings, [*zip(collection.tasks[rows], collection.labels[rows], strict=True)])
    assert list(shared) == list(TASKS)
    for task in TASKS:
        mean = expected[collection.tasks[rows] == task].mean()
        assert shared[task]["r_precision"] == pytest.approx(mean, abs=1e-6)
        assert all(shared[task][name] <= alone[task][name] for name in ("r_precision", "map_at_r", "recall_at_1"))
        assert shared[task]["queries"] == alone[task]["queries"]
    assert sum(shared[task]["r_precision"] for task in TASKS) < sum(alone[task]["r_precision"] for task in TASKS)
    assert set(json.loads((tmp_path / "out" / "shared_whitened.json").read_text())) == set(TASKS)


def test_evaluate_together__unlabelled_images_are_in_the_way_and_no_query(tmp_path):
    """Nearest to each image of `a` is an unlabelled one of `b`, whose -1 is no class."""
    embeddings = np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]], np.float32)
    collection = Collection(
        tasks=np.array(["a", "a", "b", "b"], dtype=object),
        labels=np.array([0, 0, -1, -1]),
        is_train=np.zeros(4, dtype=bool),
        rows=np.array([0, 1, 0, 1]),
    )
    rows = np.arange(4)
    expected = {"r_precision": 0.0, "map_at_r": 0.0, "recall_at_1": 0.0, "queries": 2}
    assert evaluate_together(embeddings, rows, collection) == {"a": expected}
    assert evaluate_together(embeddings[:2], rows[:2], collection) == {}


def test_main__random_weights_of_the_average_are_measured(world, tmp_path):  # noqa: F811
    none = fusion.Params.model_construct(average=None, attention=None)
    fusion.main(*world, tmp_path / "f", pairs="average", params=none, lists=lists(), seed=0)
    for name in ("a", "b"):
        main(world[0], tmp_path / "f", tmp_path / name, model="average", params=PARAMS, lists=lists())
    assert (tmp_path / "a/random.json").read_bytes() == (tmp_path / "b/random.json").read_bytes()
    draws = json.loads((tmp_path / "a/random.json").read_text())
    assert list(draws) == ["1", "2"] and all(list(draw) == list(TASKS) for draw in draws.values())
    assert draws["1"] != draws["2"]
    never = PARAMS.model_copy(update={"random_draws": 0})
    main(world[0], tmp_path / "f", tmp_path / "c", model="average", params=never, lists=lists())
    assert not (tmp_path / "c/random.json").exists()


def test_main__pixels_need_no_model(tmp_path):
    images = write_images(tmp_path / "images")
    main(images, images, tmp_path / "out", model="pixels", params=PARAMS, lists=lists())
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["dots"]["r_precision"] > 0.3


def test_main__unlabelled_images_give_no_metrics(tmp_path):
    images = write_images(tmp_path / "images", labelled=False)
    said = main(images, write_encoder(tmp_path / "e"), tmp_path / "out", model="encoder", params=PARAMS, lists=lists())
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == {}
    assert "no labelled test images" in said


def test_main__fusions_report_their_attention(world, tmp_path):  # noqa: F811
    images, adaptor, graph = world
    none = {"average": None, "attention": None}
    fusion.main(
        images,
        adaptor,
        graph,
        tmp_path / "f",
        pairs="average",
        params=fusion.Params.model_construct(**none),
        lists=lists(),
        seed=0,
    )
    main(images, tmp_path / "f", tmp_path / "out", model="average", params=PARAMS, lists=lists())
    rows = pq.read_table(tmp_path / "out" / "attention.parquet").to_pylist()
    assert len(rows) == len(TASKS) * 2 * len(NAMES)
    assert {row["adaptor"] for row in rows} == set(NAMES) and all(row["weight"] == 0.5 for row in rows)
    assert all(row["entropy"] == pytest.approx(1) for row in rows)


def test_measure_attention__entropy_is_the_mean_over_images(world):  # noqa: F811
    images, adaptor, _ = world
    sets = [load(adaptor / name) for name in NAMES]
    model = fusion.merge(sets, NAMES, "attention", torch.Generator().manual_seed(0), 1.0)
    pixels, rows = arrays.open(images / "dots" / "pixels.zarr"), np.arange(6)
    records = measure_attention(model, pixels, rows, np.array(["dots"] * 4 + ["other"] * 2), PARAMS)
    weights = model.attention(torch.from_numpy(pixels[:6]).permute(0, 3, 1, 2)).numpy().astype(float)
    for record in records:
        mine = weights[:4] if record["task"] == "dots" else weights[4:]
        by_hand = [-sum(w * np.log(w) for w in image[record["layer"]] if w > 0) / np.log(2) for image in mine]
        assert record["entropy"] == pytest.approx(np.mean(by_hand), abs=1e-5)
        assert record["weight"] == pytest.approx(
            mine[:, record["layer"], NAMES.index(record["adaptor"])].mean(), abs=1e-5
        )
    assert min(record["entropy"] for record in records) < 0.99


def test_main__a_fusion_of_unlabelled_images(world, tmp_path):  # noqa: F811
    images = write_images(tmp_path / "flat", labelled=False)
    params = fusion.Params.model_construct(average=None, attention=None)
    fusion.main(images, *world[1:], tmp_path / "f", pairs="average", params=params, lists=lists(), seed=0)
    main(images, tmp_path / "f", tmp_path / "out", model="average", params=PARAMS, lists=lists())
    assert json.loads((tmp_path / "out" / "whitened.json").read_text()) == {}
    assert pq.read_table(tmp_path / "out" / "queries.parquet").num_rows == 0


def test_raw_pixels__are_centred_unit_vectors(tmp_path):
    pixels = arrays.open(write_images(tmp_path / "images") / "dots" / "pixels.zarr")
    vectors = raw_pixels(pixels, np.array([3, 0]))
    np.testing.assert_allclose(vectors.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert raw_pixels(pixels, np.empty(0, np.int64)).shape == (0, 32 * 32 * 3)
