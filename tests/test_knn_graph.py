import numpy as np
import pytest

from stages.core.store import arrays
from stages.core.store.collection import open_features, read_tables
from stages.knn_graph import Params, main
from tests.helpers.small import TASKS, lists, write_features, write_images


def test_main__equals_sorting_all_cosines(tmp_path):
    images = write_images(tmp_path / "images")
    features = write_features(tmp_path / "features", images)
    main(images, features, tmp_path / "graph", params=Params(neighbours=5), lists=lists())
    graph = arrays.open(tmp_path / "graph" / "neighbours.zarr")[:]
    vectors = open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    np.testing.assert_array_equal(graph, np.argsort(-cosines, 1, kind="stable")[:, :5])


def test_main__lengths_of_features_play_no_part(tmp_path):
    images = write_images(tmp_path / "images")
    features = write_features(tmp_path / "features", images)
    main(images, features, tmp_path / "graph", params=Params(neighbours=5), lists=lists())
    for t, task in enumerate(TASKS):
        vectors = arrays.open(features / task / "features.zarr")[:]
        lengths = np.random.default_rng(t).uniform(0.2, 50, (len(vectors), 1)).astype(np.float32)
        (tmp_path / "long" / task).mkdir(parents=True)
        arrays.write(tmp_path / "long" / task / "features.zarr", vectors * lengths)
    main(images, tmp_path / "long", tmp_path / "again", params=Params(neighbours=5), lists=lists())
    graphs = [arrays.open(tmp_path / name / "neighbours.zarr")[:] for name in ("graph", "again")]
    np.testing.assert_array_equal(*graphs)


def test_main__more_neighbours_than_images(tmp_path):
    images = write_images(tmp_path / "images", classes=2, per_class=2)
    features = write_features(tmp_path / "features", images)
    with pytest.raises(ValueError, match="5"):
        main(images, features, tmp_path / "graph", params=Params(neighbours=5), lists=lists())
