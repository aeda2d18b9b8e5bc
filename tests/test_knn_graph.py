import json

import numpy as np
import pytest

from polygrain.store import arrays
from polygrain.store.collection import open_features, read_tables
from stages.knn_graph import Params, main
from tests.helpers.small import TASKS, lists, write_features, write_images

EXACT = Params(neighbours=5, index="auto", recall=0.95)


def test_main__equals_sorting_all_cosines(tmp_path):
    images = write_images(tmp_path / "images")
    features = write_features(tmp_path / "features", images)
    main(images, features, tmp_path / "graph", params=EXACT, lists=lists())
    graph = arrays.open(tmp_path / "graph" / "neighbours.zarr")[:]
    vectors = open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    np.testing.assert_array_equal(graph, np.argsort(-cosines, 1, kind="stable")[:, :5])


def test_main__of_few_images_has_no_summary(tmp_path):
    images = write_images(tmp_path / "images")
    main(images, write_features(tmp_path / "features", images), tmp_path / "graph", params=EXACT, lists=lists())
    assert {file.name for file in (tmp_path / "graph").iterdir()} == {"neighbours.zarr"}


def test_main__says_what_an_index_misses(tmp_path):
    images = write_images(tmp_path / "images")
    features = write_features(tmp_path / "features", images)
    params = Params(neighbours=5, index="ivf", recall=0.9)
    said = main(images, features, tmp_path / "graph", params=params, lists=lists())
    summary = json.loads((tmp_path / "graph" / "summary.json").read_text())
    vectors = open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    graph, exact = arrays.open(tmp_path / "graph" / "neighbours.zarr")[:], np.argsort(-cosines, 1, kind="stable")[:, :5]
    recall = np.mean([np.isin(*pair).mean() for pair in zip(exact, graph, strict=True)])
    assert summary["recall"] == pytest.approx(recall, abs=1e-4) and summary["recall"] >= 0.9
    assert summary["index"] == "ivf" and summary["wanted"] == 0.9 and summary["asked"] == len(graph) == 48
    assert f"ivf with a recall of {recall:.1%}" in said


def test_main__an_index_with_fewer_images_than_cells(tmp_path):
    images = write_images(tmp_path / "images", classes=2, per_class=3)
    features = write_features(tmp_path / "features", images)
    params = Params(neighbours=2, index="ivf", recall=0.9)
    with pytest.raises(ValueError, match=r"index ivf puts \d+ images into \d+ cells.*set index to exact or auto"):
        main(images, features, tmp_path / "graph", params=params, lists=lists())
    assert not (tmp_path / "graph").exists()


def test_main__lengths_of_features_play_no_part(tmp_path):
    images = write_images(tmp_path / "images")
    features = write_features(tmp_path / "features", images)
    main(images, features, tmp_path / "graph", params=EXACT, lists=lists())
    for t, task in enumerate(TASKS):
        vectors = arrays.open(features / task / "features.zarr")[:]
        lengths = np.random.default_rng(t).uniform(0.2, 50, (len(vectors), 1)).astype(np.float32)
        (tmp_path / "long" / task).mkdir(parents=True)
        arrays.write(tmp_path / "long" / task / "features.zarr", vectors * lengths)
    main(images, tmp_path / "long", tmp_path / "again", params=EXACT, lists=lists())
    graphs = [arrays.open(tmp_path / name / "neighbours.zarr")[:] for name in ("graph", "again")]
    np.testing.assert_array_equal(*graphs)


def test_main__more_neighbours_than_images(tmp_path):
    images = write_images(tmp_path / "images", classes=2, per_class=2)
    features = write_features(tmp_path / "features", images)
    with pytest.raises(ValueError, match="5"):
        main(images, features, tmp_path / "graph", params=EXACT, lists=lists())
