import shutil

import numpy as np
import pytest

from polygrain.clustering.seeding import seed_order
from polygrain.collection.postprocessing.diffusion import Smoothing, linked
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import whitening
from polygrain.store import arrays
from polygrain.store.image_table import open_features, read_tables
from stages.seeds import Params, main
from tests.helpers.small import TASKS, lists, write_features, write_images


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Images, features, and the features of all training images."""
    folder = tmp_path_factory.mktemp("world")
    images = write_images(folder / "images")
    features = write_features(folder / "features", images)
    return images, features, open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]


def only(granularity):
    """The lists of this granularity alone."""
    named = {"granularities": {granularity: f"pseudo_labels/{granularity}"}, "models": {"encoder": "encoder"}}
    return lists(**named | {"adaptors": {granularity: f"adaptor/{granularity}"}})


def run(world, output, granularity=None, **changes):
    """The arrays that are written."""
    values = {"whitening": "none", "whitened_dim": 8, "largest": 20, "sample": None, "drawn": "images"} | changes
    given = only(granularity) if granularity else lists()
    main(*world[:2], output, params=Params(**values), blocks=1, lists=given, seed=0)
    return {file.stem: arrays.open(file)[:] for file in output.iterdir()}


def test_main__draws_distinct_training_rows_and_prefixes_agree(world, tmp_path):
    order = run(world, tmp_path / "out")["order"]
    assert len(set(order.tolist())) == 20 and order.min() >= 0 and order.max() < 48
    np.testing.assert_array_equal(run(world, tmp_path / "few", largest=10)["order"], order[:10])
    assert sorted(run(world, tmp_path / "all", largest=1000)["order"].tolist()) == list(range(48))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"granularity": "k64", "largest": 1000}, "need 64 clusters; at most 48 are allowed .*48 training images"),
        ({"granularity": "k12", "sample": 10}, r"at most 10 are allowed .*seeds.sample 10"),
    ],
)
def test_main__names_the_largest_k_allowed(world, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run(world, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_fits__no_granularity_is_finer_than_the_seeds():
    values = {"whitening": "none", "whitened_dim": 8, "largest": 20, "sample": None, "drawn": "images"}
    with pytest.raises(ValueError, match=r"seeds\.largest is 20, and granularities has 32: set it to 32"):
        Params(**values).fits(only("k32"))
    Params(**values | {"largest": 32}).fits(only("k32"))


def test_main__equal_features_are_one_seed_and_not_whitened(world, tmp_path):
    features = shutil.copytree(world[1], tmp_path / "features")
    for task in TASKS:
        shutil.rmtree(features / task / "features.zarr")
        arrays.write(features / task / "features.zarr", np.full((48, 8), 8**-0.5, np.float32))
    assert run((world[0], features), tmp_path / "out", whitening="half").keys() == {"order", "records"}


def test_main__of_a_sample_draws_among_it_as_if_it_were_all(world, tmp_path):
    written = run(world, tmp_path / "out", whitening="half", sample=30)
    sample = written["sample"]
    assert len(set(sample.tolist())) == 30 and (np.diff(sample) > 0).all() and sample.max() < 48
    known = world[2][sample]
    whitener = whitening.fit(known, 8, "half")
    np.testing.assert_array_equal(whitener.projection, written["projection"])
    known = whitening.apply(whitening.Affine(written["mean"], written["projection"]), known)
    expected = seed_order(known, 20, 0)
    np.testing.assert_array_equal(written["order"], sample[expected.order])
    np.testing.assert_array_equal(written["records"], expected.records)


@pytest.mark.parametrize("images", [48, 30])
def test_main__clusters_by_their_size_need_as_many_seeds_as_they_are(world, tmp_path, images):
    written = run(world, tmp_path / "out", "size3", largest=1, sample=None if images == 48 else images, drawn="cells")
    assert len(written["order"]) == images // 3


def test_main__images_that_are_there_many_times_make_fewer_small_clusters(world, tmp_path):
    features = shutil.copytree(world[1], tmp_path / "features")
    for task in TASKS:
        shutil.rmtree(features / task / "features.zarr")
        rows = np.eye(8, dtype=np.float32)[np.arange(48) % 5]
        arrays.write(features / task / "features.zarr", rows)
    assert len(run((world[0], features), tmp_path / "out", "size2", largest=1)["order"]) == 5


def test_main__smoothed_within_tasks_they_are_clustered(world, tmp_path):
    written = run(world, tmp_path / "out", "size3", largest=1, whitening="smoothed")
    rows, tasks = world[2], read_tables(world[0], list(TASKS)).tasks[read_tables(world[0], list(TASKS)).train]
    expected = np.empty_like(rows)
    for task in TASKS:
        own = rows[tasks == task]
        near = linked(own, unit_rows(own - own.mean(0)), Smoothing(0.9, 20))
        expected[tasks == task] = near
    expected = whitening.apply(whitening.fit(expected, 8, "half"), expected)
    np.testing.assert_allclose(written["vectors"], expected, atol=1e-4)
    np.testing.assert_array_equal(written["order"], seed_order(written["vectors"], 16, 0).order)
    assert "vectors" not in run(world, tmp_path / "few", "size3", largest=1, whitening="smoothed", sample=30)
