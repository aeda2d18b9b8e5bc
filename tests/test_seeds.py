import shutil

import numpy as np
import pytest

from polygrain.clustering.seeding import seed_order
from polygrain.retrieval import whitening
from polygrain.store import arrays
from polygrain.store.collection import open_features, read_tables
from stages.seeds import Params, main
from tests.helpers.small import TASKS, lists, write_features, write_images


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Images, features, and the features of all training images."""
    folder = tmp_path_factory.mktemp("world")
    images = write_images(folder / "images")
    features = write_features(folder / "features", images)
    return images, features, open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]


def run(world, output, granularity=None, **changes):
    """The arrays that are written."""
    values = {"whitening": "none", "whitened_dim": 8, "largest": 20, "sample": None} | changes
    names = {"granularities": {granularity: f"adaptor/{granularity}"}, "models": {"encoder": "encoder"}}
    given = lists(**names if granularity else {})
    main(*world[:2], output, params=Params(**values), lists=given, seed=0)
    return {file.stem: arrays.open(file)[:] for file in output.iterdir()}


def test_main__draws_distinct_training_rows_and_prefixes_agree(world, tmp_path):
    order = run(world, tmp_path / "out")["order"]
    assert len(set(order.tolist())) == 20 and order.min() >= 0 and order.max() < 48
    np.testing.assert_array_equal(run(world, tmp_path / "few", largest=10)["order"], order[:10])
    assert sorted(run(world, tmp_path / "all", largest=1000)["order"].tolist()) == list(range(48))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"granularity": "k64", "largest": 1000}, "k64 needs 64 clusters; at most 48 are allowed .*48 training images"),
        ({"largest": 6}, "at most 6 are allowed"),
        ({"granularity": "k12", "sample": 10}, r"at most 10 are allowed .*seeds.largest 20, seeds.sample 10"),
    ],
)
def test_main__names_the_largest_k_allowed(world, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run(world, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_fits__no_granularity_is_finer_than_the_seeds():
    values = {"whitening": "none", "whitened_dim": 8, "largest": 20, "sample": None}
    names = {"granularities": {"k32": "adaptor/k32"}, "models": {"encoder": "encoder"}}
    with pytest.raises(ValueError, match=r"seeds\.largest is 20, and granularities has 32: set it to 32"):
        Params(**values).fits(lists(**names))
    Params(**values | {"largest": 32}).fits(lists(**names))


def test_main__refuses_more_processes_than_training_images(world, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "49")
    with pytest.raises(ValueError, match=r"48 training images for 49 processes.*start 48 at most"):
        run(world, tmp_path / "out")


def test_main__equal_features_are_too_few_seeds_and_not_whitened(world, tmp_path):
    features = shutil.copytree(world[1], tmp_path / "features")
    for task in TASKS:
        shutil.rmtree(features / task / "features.zarr")
        arrays.write(features / task / "features.zarr", np.full((48, 8), 8**-0.5, np.float32))
    with pytest.raises(ValueError, match="only 1 of the 48 points are distinct"):
        run((world[0], features), tmp_path / "out", whitening="half")


def test_main__of_a_sample_draws_among_it_as_if_it_were_all(world, tmp_path):
    written = run(world, tmp_path / "out", whitening="half", sample=30)
    sample = written["sample"]
    assert len(set(sample.tolist())) == 30 and (np.diff(sample) > 0).all() and sample.max() < 48
    known = world[2][sample]
    whitener = whitening.fit(known, 8, "half")
    np.testing.assert_array_equal(whitener.projection, written["projection"])
    known = whitening.apply(whitening.Whitening(written["mean"], written["projection"]), known)
    expected = seed_order(known, 20, 0)
    np.testing.assert_array_equal(written["order"], sample[expected.order])
    np.testing.assert_array_equal(written["records"], expected.records)
