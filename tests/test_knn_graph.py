import json

import numpy as np
import pytest

from polygrain.store import arrays
from polygrain.store.image_table import open_features, read_tables
from stages.knn_graph import Params, main
from tests.helpers.small import TASKS, lists, store_features, write_features, write_images


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Images, features, and the neighbours of all training images by sorting all cosines."""
    folder = tmp_path_factory.mktemp("world")
    images = write_images(folder / "images")
    features = write_features(folder / "features", images)
    vectors = open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    return images, features, np.argsort(-cosines, 1, kind="stable")[:, :5]


def run(images, features, output, neighbours=5, index="auto", recall=0.95):
    params = Params(neighbours=neighbours, index=index, recall=recall)
    message = main(images, features, output, params=params, lists=lists())
    return arrays.open(output / "neighbours.zarr")[:], message


def test_main__equals_sorting_all_cosines_whatever_the_lengths(world, tmp_path):
    images, features, expected = world
    for t, task in enumerate(TASKS):
        vectors = arrays.open(features / task / "features.zarr")[:]
        lengths = np.random.default_rng(t).uniform(0.2, 50, (len(vectors), 1)).astype(np.float32)
        store_features(tmp_path / "long" / task, vectors * lengths)
    np.testing.assert_array_equal(run(images, features, tmp_path / "graph")[0], expected)
    np.testing.assert_array_equal(run(images, tmp_path / "long", tmp_path / "again")[0], expected)
    assert {file.name for file in (tmp_path / "graph").iterdir()} == {"neighbours.zarr"}


def test_main__says_what_an_index_misses(world, tmp_path):
    images, features, expected = world
    graph, message = run(images, features, tmp_path / "graph", index="ivf", recall=0.9)
    summary = json.loads((tmp_path / "graph/summary.json").read_text())
    recall = np.mean([np.isin(*pair).mean() for pair in zip(expected, graph, strict=True)])
    assert summary["recall"] == pytest.approx(recall, abs=1e-4) and summary["recall"] >= 0.9
    assert summary["index"] == "ivf" and summary["wanted"] == 0.9 and summary["asked"] == len(graph) == 48
    assert f"ivf with a recall of {recall:.1%}" in message


def test_main__too_few_images_for_an_index(tmp_path):
    images = write_images(tmp_path / "images", classes=2, per_class=3)
    with pytest.raises(ValueError, match=r"ivf puts \d+ images into \d+ cells"):
        run(images, write_features(tmp_path / "features", images), tmp_path / "graph", 2, "ivf")
    assert not (tmp_path / "graph").exists()


def test_main__fewer_images_than_neighbours_have_all_others(tmp_path):
    images = write_images(tmp_path / "images", classes=2, per_class=3)
    graph, _ = run(images, write_features(tmp_path / "features", images), tmp_path / "graph", 7)
    assert graph.shape == (6, 5) and all(set(row) == set(range(6)) - {i} for i, row in enumerate(graph))
