import json

import numpy as np
import pytest

from polygrain.clustering import distances, seeding
from polygrain.clustering import lloyd as lloyd_module
from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.seeding import nearest_seeds
from polygrain.compute.vectors import squared_distances
from polygrain.store import arrays
from polygrain.store.image_table import open_features, read_tables
from stages import seeds
from stages.pseudo_labels import Params, main
from tests.helpers.pretended_gpu import pretended_gpu
from tests.helpers.small import TASKS, lists, store_features, write_features, write_images
from tests.helpers.whitened import whitened


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Images, features, and the features of all training images."""
    folder = tmp_path_factory.mktemp("world")
    images = write_images(folder / "images")
    features = write_features(folder / "features", images)
    return images, features, open_features(features, list(TASKS))[read_tables(images, list(TASKS)).train]


def write_all(folder, images, vectors):
    """Features of all images: a row for each, in the order of the tasks."""
    tasks = read_tables(images, list(TASKS)).tasks
    for task in TASKS:
        store_features(folder / task, vectors[tasks == task].astype(np.float32))
    return folder


def read(folder, *names):
    return [arrays.open(folder / f"{name}.zarr")[:] for name in names]


def cluster(folder, images, features, whitening="none", sample=None, granularity="k8", **changes):
    params = seeds.Params(whitening=whitening, whitened_dim=5, largest=12, sample=sample, drawn="images")
    given = {"params": params, "blocks": 1, "lists": lists(), "seed": 0}
    seeds.main(images, features, folder / "seeds", **given)
    values = {"granularity": granularity, "params": Params(max_iterations=100), "lists": lists(**changes)}
    main(images, features, folder / "seeds", folder / "k8", **values)
    return read(folder / "k8", "labels", "centroids")


def distances_to(vectors, centroids):
    return ((vectors[:, None] - centroids[None]) ** 2).sum(2)


def test_main__names_the_granularity_that_needs_more_images_than_are_distinct(world, tmp_path):
    images, _, vectors = world
    twice = np.zeros((96, 8), np.float32)
    twice[read_tables(images, list(TASKS)).train] = vectors[np.arange(48) % 6]
    features = write_all(tmp_path / "features", images, twice)
    with pytest.raises(ValueError, match="k8 needs 8 seeds, and 6 were drawn, which are distinct images: take k6"):
        cluster(tmp_path, images, features, granularity="k8")
    named = {name: f"pseudo_labels/{name}" for name in ("size4", "k8")}
    off = {name: {} for name in ("adaptors", "fusions", "models")}
    sizes, _ = cluster(tmp_path, images, features, granularity="size4", granularities=named, **off)
    assert len(set(sizes.tolist())) == 6


def test_main__labels_every_training_image_with_its_nearest_centroid(world, tmp_path):
    images, features, vectors = world
    labels, centroids = cluster(tmp_path, images, features)
    distances = distances_to(vectors, centroids)
    np.testing.assert_array_equal(labels, distances.argmin(1))
    for number in range(8):
        np.testing.assert_allclose(centroids[number], vectors[labels == number].mean(0), atol=1e-6)
    summary = json.loads((tmp_path / "k8" / "summary.json").read_text())
    assert summary["k"] == 8 and summary["images"] == 48
    assert summary["inertia"] == pytest.approx(distances.min(1).sum(), rel=1e-5)


@pytest.mark.parametrize(("whitening", "sample"), [("none", None), ("half", 30)])
def test_main__all_is_computed_on_a_gpu(world, tmp_path, monkeypatch, whitening, sample):
    """And gives what a CPU gives."""
    expected = cluster(tmp_path / "cpu", *world[:2], whitening, sample)
    where, compare = set(), squared_distances
    for module in (seeding, distances, lloyd_module):
        monkeypatch.setattr(module, "squared_distances", lambda *a: (where.add(a[0].device.type), compare(*a))[1])
    with pretended_gpu():
        labels, centroids = cluster(tmp_path / "gpu", *world[:2], whitening, sample)
    assert where == {"cuda"}
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_allclose(centroids, expected[1], atol=1e-6)


def test_main__says_when_more_seeds_are_needed(world, tmp_path):
    more = {"granularities": {"k16": "pseudo_labels/k16"}, "adaptors": {"k16": "adaptor/k16"}, "models": {}}
    with pytest.raises(ValueError, match="k16 needs 16 seeds"):
        cluster(tmp_path, *world[:2], granularity="k16", **more)


def test_main__features_with_lengths_are_clustered_as_they_are(world, tmp_path):
    """Two directions, two lengths: clusters of z part by length, clusters of directions cannot."""
    rng = np.random.default_rng(0)
    directions = np.eye(8)[:2][rng.integers(0, 2, 96)] + 0.01 * rng.normal(size=(96, 8))
    long = write_all(tmp_path / "long", world[0], directions * rng.choice([1.0, 20.0], (96, 1)))
    labels, centroids = cluster(tmp_path / "z", world[0], long)
    known = open_features(long, list(TASKS))[read_tables(world[0], list(TASKS)).train]
    np.testing.assert_array_equal(labels, distances_to(known, centroids).argmin(1))
    lengths = np.linalg.norm(known, axis=1)
    assert all(np.ptp(lengths[labels == number]) < 2 for number in range(8))


@pytest.mark.parametrize(("kind", "power"), [("half", 0.25), ("full", 0.5)])
def test_main__clusters_whitened_features_and_gives_the_means_of_the_features(world, tmp_path, kind, power):
    images, features, vectors = world
    by_hand = np.zeros((96, 5), np.float32)
    by_hand[read_tables(images, list(TASKS)).train] = whitened(vectors, 5, power)
    labels, centroids = cluster(tmp_path / "a", images, features, kind)
    expected, _ = cluster(tmp_path / "b", images, write_all(tmp_path / "by_hand", images, by_hand))
    np.testing.assert_array_equal(labels, expected)
    for number in range(8):
        np.testing.assert_allclose(centroids[number], vectors[labels == number].mean(0), atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "half"])
def test_main__of_a_sample_gives_every_image_to_the_nearest_of_its_centroids(world, tmp_path, kind):
    """Its clusters are those of the sample alone."""
    images, features, vectors = world
    labels, centroids = cluster(tmp_path, images, features, kind, 30)
    sample, order, records = read(tmp_path / "seeds", "sample", "order", "records")
    assert len(sample) == 30 and set(order) <= set(sample) and len(order) == 12
    known = vectors
    if kind == "half":
        mean, projection = read(tmp_path / "seeds", "mean", "projection")
        known = (vectors - mean) @ projection
        known /= np.linalg.norm(known, axis=1, keepdims=True)
    expected = lloyd(known[sample], known[order[:8]], nearest_seeds(records, 8, 30), 100)
    distances = distances_to(known, expected.centroids)
    np.testing.assert_array_equal(labels, distances.argmin(1))
    for number in range(8):
        np.testing.assert_allclose(centroids[number], vectors[labels == number].mean(0), atol=1e-6)
    summary = json.loads((tmp_path / "k8" / "summary.json").read_text())
    assert summary["images"] == 48 and summary["inertia"] == pytest.approx(distances.min(1).sum(), rel=1e-5)
    facts = summary["sample"]
    assert facts["images"] == 30 and facts["inertia_per_image_of_all"] == pytest.approx(summary["inertia"] / 48)
    assert facts["inertia_per_image"] == pytest.approx(distances.min(1)[sample].mean(), rel=1e-5)
