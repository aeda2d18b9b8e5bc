import json

import numpy as np
import pytest

from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.seeding import nearest_seeds
from polygrain.store import arrays
from polygrain.store.collection import open_features, read_tables
from stages import seeds
from stages.pseudo_labels import Params, main
from tests.helpers.small import TASKS, lists, write_features, write_images
from tests.helpers.whitened import whitened


@pytest.fixture
def world(tmp_path):
    images = write_images(tmp_path / "images")
    (tmp_path / "seeds").mkdir()
    order = np.random.default_rng(0).permutation(48)[:12]
    arrays.write(tmp_path / "seeds" / "order.zarr", order)
    features = write_features(tmp_path / "features", images)
    vectors = open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]
    distances, records = ((vectors[:, None] - vectors[order][None]) ** 2).sum(2), []
    for position in range(12):
        nearer = distances[:, position] < distances[:, :position].min(1, initial=np.inf)
        records += [(row, position) for row in np.flatnonzero(nearer) if position]
    arrays.write(tmp_path / "seeds" / "records.zarr", np.array(records))
    return images, features, tmp_path / "seeds"


def test_main__labels_every_training_image_with_its_nearest_centroid(world, tmp_path):
    main(*world, tmp_path / "k8", granularity="k8", params=Params(max_iterations=100), lists=lists())
    labels, centroids = (arrays.open(tmp_path / "k8" / f"{name}.zarr")[:] for name in ("labels", "centroids"))
    vectors = open_features(world[1], list(TASKS))[read_tables(world[0], list(TASKS)).train]
    distances = ((vectors[:, None] - centroids[None]) ** 2).sum(2)
    np.testing.assert_array_equal(labels, distances.argmin(1))
    for cluster in range(8):
        np.testing.assert_allclose(centroids[cluster], vectors[labels == cluster].mean(0), atol=1e-6)
    summary = json.loads((tmp_path / "k8" / "summary.json").read_text())
    assert summary["k"] == 8 and summary["images"] == 48
    assert summary["inertia"] == pytest.approx(distances.min(1).sum(), rel=1e-5)


def test_main__says_when_more_seeds_are_needed(world, tmp_path):
    wanted = lists(granularities={"k16": "adaptor/k16"}, models={"encoder": "encoder"})
    with pytest.raises(ValueError, match="k16 needs 16 seeds"):
        main(*world, tmp_path / "k16", granularity="k16", params=Params(max_iterations=9), lists=wanted)


def test_main__features_with_lengths_are_clustered_as_they_are(world, tmp_path):
    """Two directions, two lengths: clusters of z part by length, clusters of directions cannot."""
    images, _, _ = world
    rng = np.random.default_rng(0)
    for task in TASKS:
        directions = np.eye(8)[:2][rng.integers(0, 2, 48)] + 0.01 * rng.normal(size=(48, 8))
        vectors = directions * rng.choice([1.0, 20.0], (48, 1))
        (tmp_path / "long" / task).mkdir(parents=True)
        arrays.write(tmp_path / "long" / task / "features.zarr", vectors.astype(np.float32))
    labels, centroids = cluster(tmp_path / "z", images, tmp_path / "long", "none")
    known = open_features(tmp_path / "long", list(TASKS))[read_tables(images, list(TASKS)).train]
    distances = ((known[:, None] - centroids[None]) ** 2).sum(2)
    np.testing.assert_array_equal(labels, distances.argmin(1))
    lengths = np.linalg.norm(known, axis=1)
    for number in range(8):
        assert np.ptp(lengths[labels == number]) < 2


def cluster(folder, images, features, whitening, sample=None):
    params = seeds.Params(whitening=whitening, whitened_dim=5, largest=12, sample=sample)
    seeds.main(images, features, folder / "seeds", params=params, lists=lists(), seed=0)
    values = {"granularity": "k8", "params": Params(max_iterations=100), "lists": lists()}
    main(images, features, folder / "seeds", folder / "k8", **values)
    return [arrays.open(folder / "k8" / f"{name}.zarr")[:] for name in ("labels", "centroids")]


@pytest.mark.parametrize(("kind", "power"), [("half", 0.25), ("full", 0.5)])
def test_main__clusters_whitened_features_and_gives_the_means_of_the_features(world, tmp_path, kind, power):
    images, features, _ = world
    collection = read_tables(images, list(TASKS))
    known = open_features(features, list(TASKS))[:]
    by_hand = np.zeros((len(known), 5), np.float32)
    by_hand[collection.train] = whitened(known[collection.train], 5, power)
    for task in TASKS:
        (tmp_path / "by_hand" / task).mkdir(parents=True)
        arrays.write(tmp_path / "by_hand" / task / "features.zarr", by_hand[collection.tasks == task])
    labels, centroids = cluster(tmp_path / "a", images, features, kind)
    expected, _ = cluster(tmp_path / "b", images, tmp_path / "by_hand", "none")
    np.testing.assert_array_equal(labels, expected)
    for number in range(8):
        np.testing.assert_allclose(centroids[number], known[collection.train][labels == number].mean(0), atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "half"])
def test_main__of_a_sample_gives_every_image_to_the_nearest_of_its_centroids(world, tmp_path, kind):
    """Its clusters are those of the sample alone."""
    images, features, _ = world
    vectors = open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]
    labels, centroids = cluster(tmp_path / "a", images, features, kind, 30)
    sample, order, records = (
        arrays.open(tmp_path / "a" / "seeds" / f"{name}.zarr")[:] for name in ("sample", "order", "records")
    )
    assert len(sample) == 30 and set(order) <= set(sample) and len(order) == 12
    known = vectors
    if kind == "half":
        mean, projection = (
            arrays.open(tmp_path / "a" / "seeds" / f"{name}.zarr")[:] for name in ("mean", "projection")
        )
        known = (vectors - mean) @ projection
        known /= np.linalg.norm(known, axis=1, keepdims=True)
    expected = lloyd(known[sample], known[order[:8]], nearest_seeds(records, 8, 30), 100)
    distances = ((known[:, None] - expected.centroids[None]) ** 2).sum(2)
    np.testing.assert_array_equal(labels, distances.argmin(1))
    for number in range(8):
        np.testing.assert_allclose(centroids[number], vectors[labels == number].mean(0), atol=1e-6)
    summary = json.loads((tmp_path / "a" / "k8" / "summary.json").read_text())
    assert summary["images"] == 48 and summary["inertia"] == pytest.approx(distances.min(1).sum(), rel=1e-5)
    facts = summary["sample"]
    assert facts["images"] == 30 and facts["inertia_per_image_of_all"] == pytest.approx(summary["inertia"] / 48)
    assert facts["inertia_per_image"] == pytest.approx(distances.min(1)[sample].mean(), rel=1e-5)


def test_main__a_sample_of_all_is_no_sample(world, tmp_path):
    images, features, _ = world
    whole, sampled_too = (cluster(tmp_path / str(count), images, features, "half", count) for count in (None, 48))
    assert not (tmp_path / "48" / "seeds" / "sample.zarr").exists()
    for before, after in zip(whole, sampled_too, strict=True):
        np.testing.assert_array_equal(before, after)
