import numpy as np
import pytest
import torch

from polygrain.mpcl import probe
from polygrain.mpcl.trainable import TrainableEncoder
from polygrain.store import arrays
from tests.helpers.pretraining_world import VIEW, network
from tests.helpers.small import CONFIG

RECIPE = {"epochs": 20, "batch": 8, "classifier_rate": 0.5, "encoder_rate": 0, "weight_decay": 0, "augmentation": None}
RECIPE |= {"crop_ratio": 1}


def recipe(**changes):
    return probe.Recipe(**(RECIPE | changes))


@pytest.fixture
def pixels(tmp_path):
    """Three classes of noise around a colour each."""
    rng, labels = np.random.default_rng(0), np.arange(24) % 3
    images = rng.integers(0, 120, (24, 32, 32, 3), dtype=np.uint8)
    for i, label in enumerate(labels):
        images[i, ..., label] += 120
    arrays.write(tmp_path / "pixels.zarr", images)
    return arrays.open(tmp_path / "pixels.zarr"), labels


@pytest.mark.parametrize(
    ("labels", "is_train", "train", "test"),
    [
        ([0, 1, 0, 1, 0], [1, 1, 1, 0, 0], [0, 1, 2], [3, 4]),  # both parts have the same classes
        ([0, 0, 1, 1, 2, 2, 2, -1], [1, 1, 0, 0, 0, 0, 0, 1], [2, 4, 6], [3, 5]),  # unseen classes are cut in halves
        ([-1, -1, -1, -1], [1, 1, 0, 0], [], []),
    ],
)
def test_probe_split__by_hand(labels, is_train, train, test):
    first, second = probe.probe_split(np.array(labels), np.array(is_train, dtype=bool))
    assert (first.tolist(), second.tolist()) == (train, test)


@pytest.mark.parametrize(("share", "counts"), [(0.01, [1, 1]), (0.5, [5, 20])])
def test_draw_share__of_each_class_at_least_one(share, counts):
    labels = np.array([0] * 10 + [1] * 40)
    chosen = probe.draw_share(labels, share, 0)
    assert np.bincount(labels[chosen]).tolist() == counts and len(set(chosen)) == len(chosen)


def test_accuracy__the_right_class_among_the_first():
    classifier = torch.nn.Linear(3, 3)
    torch.nn.init.eye_(classifier.weight), torch.nn.init.zeros_(classifier.bias)
    features, labels = torch.tensor([[3.0, 2, 1], [1, 2, 3], [3, 1, 2]]), np.array([0, 1, 1])
    found = [probe.accuracy(classifier, features, labels, top) for top in (1, 2, 3)]
    assert found == pytest.approx([1 / 3, 2 / 3, 1])


@pytest.mark.parametrize(
    ("changes", "least"),
    [({"augmentation": VIEW}, 0.5), ({"encoder_rate": 0.05, "classifier_rate": 0.1}, 0.9)],
    ids=["frozen", "trained"],
)
def test_fine_tune__learns_and_trains_the_encoder_unless_its_rate_is_zero(pixels, tmp_path, changes, least):
    images, labels = pixels
    encoder = network()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    classifier = probe.fine_tune(encoder, images, np.arange(24), labels, 3, recipe(**changes), 0, tmp_path / "w")
    same = all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())
    assert same == ("encoder_rate" not in changes)
    assert probe.accuracy(classifier, probe.embed(encoder, images, np.arange(24), 7), labels) > least


def test_embed__is_the_network_on_each_image_whatever_the_batch(pixels):
    images, _ = pixels
    encoder = TrainableEncoder(CONFIG)
    rows = np.array([5, 2, 9])
    plain = encoder.eval()(torch.from_numpy(images[rows]).permute(0, 3, 1, 2).float() / 255).detach()
    for batch in (1, 2, 5):
        torch.testing.assert_close(probe.embed(encoder, images, rows, batch), plain)
    views = [probe.embed(encoder, images, rows, 5, (VIEW, torch.Generator().manual_seed(s))) for s in (0, 0, 1)]
    assert torch.equal(views[0], views[1]) and not torch.allclose(views[0], views[2])
