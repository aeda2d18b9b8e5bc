import shutil

import numpy as np
import pytest

from polygrain.clustering.seeding import seed_order
from polygrain.retrieval import whitening
from polygrain.store import arrays
from polygrain.store.collection import open_features, read_tables
from stages.seeds import Params, main
from tests.helpers.small import TASKS, lists, write_features, write_images
from tests.helpers.whitened import whitened


@pytest.fixture
def world(tmp_path):
    images = write_images(tmp_path / "images")
    return images, write_features(tmp_path / "features", images)


def params(largest, **changes):
    return Params(**({"whitening": "none", "whitened_dim": 8, "largest": largest, "sample": None} | changes))


def run(world, tmp_path, largest, **changes):
    main(*world, tmp_path / "seeds", params=params(largest), lists=lists(**changes), seed=0)
    return arrays.open(tmp_path / "seeds" / "order.zarr")[:]


def test_main__draws_distinct_training_rows_and_prefixes_agree(world, tmp_path):
    order = run(world, tmp_path, 20)
    assert len(set(order.tolist())) == 20 and order.min() >= 0 and order.max() < 48
    np.testing.assert_array_equal(run(world, tmp_path, 10), order[:10])


def test_main__never_draws_more_than_there_are_images(world, tmp_path):
    assert sorted(run(world, tmp_path, 1000).tolist()) == list(range(48))


def test_main__names_the_largest_k_allowed(world, tmp_path):
    message = r"k64 needs 64 clusters; at most 48 are allowed .*48 training images, seeds.largest 1000"
    with pytest.raises(ValueError, match=message):
        run(world, tmp_path, 1000, granularities={"k64": "adaptor/k64"}, models={"encoder": "encoder"})
    with pytest.raises(ValueError, match=r"at most 6 are allowed"):
        run(world, tmp_path, 6)


def test_main__refuses_more_processes_than_training_images(world, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "49")
    with pytest.raises(ValueError, match=r"48 training images for 49 processes.*start 48 at most"):
        run(world, tmp_path, 20)
    assert not (tmp_path / "seeds").exists()


def known(world):
    return open_features(world[1], list(TASKS))[read_tables(world[0], list(TASKS)).train]


@pytest.mark.parametrize(("kind", "power"), [("half", 0.25), ("full", 0.5)])
def test_main__draws_among_whitened_features_and_keeps_the_whitening(world, tmp_path, kind, power):
    main(*world, tmp_path / "seeds", params=params(20, whitening=kind, whitened_dim=5), lists=lists(), seed=0)
    expected = whitened(known(world), 5, power)
    found = arrays.open(tmp_path / "seeds" / "order.zarr")[:]
    np.testing.assert_array_equal(found, seed_order(expected.astype(np.float32), 20, 0).order)
    mean, projection = (arrays.open(tmp_path / "seeds" / f"{name}.zarr")[:] for name in ("mean", "projection"))
    turned = (known(world) - mean) @ projection
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    np.testing.assert_allclose(turned @ turned.T, expected @ expected.T, atol=1e-5)


def test_main__equal_features_are_too_few_seeds_and_not_whitened(world, tmp_path):
    for task in TASKS:
        shutil.rmtree(world[1] / task / "features.zarr")
        arrays.write(world[1] / task / "features.zarr", np.full((48, 8), 8**-0.5, np.float32))
    with pytest.raises(ValueError, match="only 1 of the 48 points are distinct"):
        main(*world, tmp_path / "seeds", params=params(20, whitening="half"), lists=lists(), seed=0)


def test_main__of_a_sample_draws_among_it_as_if_it_were_all(world, tmp_path):
    main(*world, tmp_path / "seeds", params=params(20, whitening="half", sample=30), lists=lists(), seed=0)
    names = ("sample", "order", "records", "mean", "projection")
    sample, order, records, mean, projection = (arrays.open(tmp_path / "seeds" / f"{n}.zarr")[:] for n in names)
    assert len(set(sample.tolist())) == 30 and (np.diff(sample) > 0).all() and sample.max() < 48
    whitener = whitening.fit(known(world)[sample], min(8, whitening.largest(known(world)[sample])), "half")
    np.testing.assert_array_equal(whitener.projection, projection)
    expected = seed_order(whitening.apply(whitening.Whitening(mean, projection), known(world)[sample]), 20, 0)
    np.testing.assert_array_equal(order, sample[expected.order])
    np.testing.assert_array_equal(records, expected.records)


def test_main__a_sample_smaller_than_the_clusters(world, tmp_path):
    message = r"k12 needs 12 clusters; at most 10 are allowed .*seeds.largest 20, seeds.sample 10"
    with pytest.raises(ValueError, match=message):
        values = {"granularities": {"k12": "adaptor/k12"}, "models": {"encoder": "encoder"}}
        main(*world, tmp_path / "seeds", params=params(20, sample=10), lists=lists(**values), seed=0)
    assert not (tmp_path / "seeds").exists()
