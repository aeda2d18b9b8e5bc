import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from polygrain.gsp.folds.images import read_images
from polygrain.gsp.folds.trunk import Backbone, load
from polygrain.store import work
from polygrain.store.image_table import read_table
from stages import gsp_classifier
from stages.gsp_classifier import Params, beside_printed, main, split
from tests.helpers.keys import assert_key_follows
from tests.helpers.small import SIZE, lists, set_split, write_images
from tests.test_profiles import composed

AUGMENTATION = dict.fromkeys(["turn", "flip", "stroke", "jitter", "tint", "grey", "blur"], 0.0)
VALUES = composed("gsp-imagenet")["gsp_classifier"] | {
    "networks": {"small": {"architecture": "test_resnet", "side": SIZE}},
    "poolings": {"gap": {}, "gsp": {"prototypes": 4, "mu": 0.5, "epsilon": 5.0}},
    "embedding": 4,
    "epochs": 6,
    "batch": 8,
    "learning_rate": 0.05,
    "warmup": 0.0,
    "precision": "float32",
    "augmentation": AUGMENTATION | {"smallest_crop": 1.0},
    "crop_ratio": 1.0,
    "centre": 1.0,
}


def spec(**changes):
    values = {"images": "images/dots", "network": "small", "pooling": "gsp", "zero_shot": 0.1} | changes
    return lists(gsp_classifiers={"one": values})


@pytest.fixture(autouse=True)
def in_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Six classes with training and test images of each."""
    folder = write_images(tmp_path_factory.mktemp("world") / "images") / "dots"
    set_split(folder, ["test" if i % 4 == 3 else "train" for i in range(len(read_table(folder)))])
    return folder


def run(images, output, **values):
    main(images, output, name="one", params=Params(**(VALUES | values)), lists=spec(), seed=0)
    work.clear()  # as the command does
    return json.loads((output / "metrics.json").read_text())


def test_main__its_network_alone_is_a_backbone_of_the_folds(images, tmp_path):
    network = {"small": {"architecture": "resnet20", "side": 32}}
    run(images, tmp_path / "out", networks=network, epochs=1)
    whole, file = load_file(tmp_path / "out/weights.safetensors"), tmp_path / "out/network.safetensors"
    values = {"weights": "file", "path": str(file), "architecture": "resnet20", "mean": None, "std": None}
    trunk = load(Backbone(**values, depth=3, is_trained=True, freezes_norm=False), tmp_path, 0)
    for name, tensor in trunk.network.state_dict().items():
        assert np.array_equal(tensor.numpy(), whole[f"network.{name}"])


def test_main__learns_its_classes_and_writes_what_they_are_worth(images, tmp_path):
    metrics = run(images, tmp_path / "out")
    assert list(metrics) == ["accuracy", "accuracy_top5", "map_at_r", "r_precision", "recall_at_1"]
    assert metrics["accuracy"] > 0.5 and metrics["recall_at_1"] > 0.5  # 1/6 by chance
    lines = (tmp_path / "out/history.csv").read_text().splitlines()
    assert lines[0] == "epoch,loss,accuracy" and len(lines) == 7
    assert not list((tmp_path / ".work").glob("gsp_classifier/*/*"))


def test_main__two_runs_give_the_same_bytes(images, tmp_path):
    first, second = (tmp_path / name for name in ("first", "second"))
    run(images, first, epochs=1), run(images, second, epochs=1)
    assert all(file.read_bytes() == (second / file.name).read_bytes() for file in first.iterdir())


def test_beside_printed__only_where_all_of_the_key_is_the_same():
    metrics = {"accuracy": 0.5, "accuracy_top5": 0.75, "map_at_r": 0.25}
    key = {"images": "images/imagenet", "network": "resnet50v2", "pooling": "gsp", "zero_shot": 0.1}
    classifier = gsp_classifier.Classifier(**key)
    assert beside_printed(metrics, classifier, {}, 512).splitlines()[2:] == [
        "| accuracy | 50.00 | 76.53 |",
        "| accuracy, top 5 | 75.00 |  |",
        "| MAP@R | 25.00 | 42.58 |",
    ]
    for change in ({"images": "images/cub"}, {"network": "small"}, {"zero_shot": 0.0}, {"pooling": "gmp"}):
        assert "76.53" not in beside_printed(metrics, gsp_classifier.Classifier(**key | change), {}, 512)
    assert "76.53" not in beside_printed(metrics, classifier, {}, 64)


def test_split__needs_training_and_test_images_of_the_same_classes(images, tmp_path):
    table = read_images(images)
    train, test, classes = split(table)
    assert len(train) == 36 and len(test) == 12 and np.array_equal(classes, table.labels)
    with pytest.raises(ValueError, match="3 classes have test images but no training"):
        split(read_images(write_images(tmp_path / "images") / "dots"))
    with pytest.raises(ValueError, match="0 test images"):
        split(table._replace(splits=np.full(48, "train")))


def test_params__name_the_networks_and_poolings_that_are_known():
    for changes, word in (({"network": "large"}, "known: small"), ({"pooling": "gmp"}, "known: gap")):
        with pytest.raises(ValueError, match=word):
            Params(**VALUES).fits(spec(**changes))


def test_main__its_key_follows_what_it_reads(images, tmp_path, monkeypatch):
    files = ["0/table.parquet"]
    assert_key_follows(files, lambda given: run(*given, tmp_path / "out"), [images], tmp_path, monkeypatch)
