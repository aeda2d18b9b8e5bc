import json
import shutil
from pathlib import Path

import pytest

from polygrain.encoder.model import save
from polygrain.store.image_table import read_table, write_share
from stages import mpcl_probe
from tests.helpers.keys import assert_key_follows
from tests.helpers.pretraining_world import VIEW, network
from tests.helpers.small import TASKS, lists, set_split, write_encoder, write_images

LINEAR = {"epochs": 5, "batch": 8, "classifier_rate": 0.3, "encoder_rate": 0, "weight_decay": 0, "crop_ratio": 1}


def params(**changes):
    values = {
        "precision": "float32",
        "view": VIEW,
        "linear": LINEAR | {"augmentation": None},
        "fine_tuning": LINEAR | {"epochs": 1, "encoder_rate": 0.01, "augmentation": VIEW},
        "shares": [0.01, 0.5],
    }
    return mpcl_probe.Params(**(values | changes))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    encoder = write_encoder(folder / "encoder")
    (encoder / "start").mkdir()
    save(network(seed=1), encoder / "start")
    return write_images(folder / "images"), encoder


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(world, output, **changes):
    message = mpcl_probe.main(*world, output, run="run", params=params(**changes), lists=lists(), seed=0)
    return json.loads((output / "metrics.json").read_text()), message


@pytest.fixture(scope="module")
def measured(world, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("measured"))
        return run(world, Path("out"))


def test_main__measures_both_encoders_on_every_task(measured):
    metrics, message = measured
    assert list(metrics) == ["start", "trained"]
    names = ["images", "r_precision", "linear", "fine_0.01", "fine_0.5", "alignment", "uniformity"]
    names.append("effective_rank")
    for part in metrics.values():
        assert list(part) == list(TASKS)
        for values in part.values():
            assert list(values) == names and values["images"] == 12
            assert all(0 <= values[name] <= 1 for name in names[1:5])
            assert 0 <= values["alignment"] <= 4 and values["uniformity"] <= 0
            assert 1 <= values["effective_rank"] <= 12
    assert metrics["start"] != metrics["trained"] and message.startswith("linear probe")


def test_main__a_probe_on_views_and_a_top_accuracy(world, measured, tmp_path, monkeypatch):
    monkeypatch.setattr(mpcl_probe, "TOP", 2)
    metrics, _ = run(world, tmp_path / "out", linear=LINEAR | {"augmentation": VIEW})
    for name, part in metrics.items():
        assert part["dots"]["fine_0.5"] <= part["dots"]["fine_0.5_top2"] <= 1
        for measure in ("r_precision", "fine_0.01", "fine_0.5", "alignment"):  # all but the linear probe
            assert part["dots"][measure] == measured[0][name]["dots"][measure]


def test_main__images_that_a_list_names_are_taken_for_its_share(world, tmp_path, monkeypatch):
    images = shutil.copytree(world[0], tmp_path / "images")
    paths = read_table(images / "dots")["path"].to_pylist()
    is_test = [split == "test" for split in read_table(images / "dots")["split"].to_pylist()]
    named = [path for path, test in zip(paths, is_test, strict=True) if test][::4]
    write_share(images / "dots", 0.5, named)
    fitted, fine_tune = [], mpcl_probe.probe.fine_tune

    def noted(network, pixels, rows, *given):
        fitted.append(rows.tolist())
        return fine_tune(network, pixels, rows, *given)

    monkeypatch.setattr(mpcl_probe.probe, "fine_tune", noted)
    run((images, world[1]), tmp_path / "out")
    expected = [paths.index(path) for path in named]
    drawn, listed = fitted[:2]
    assert listed == expected == fitted[5] and drawn != expected and len(drawn) == 3


def test_main__tasks_without_labelled_test_images_are_left_out(world, tmp_path):
    images = shutil.copytree(world[0], tmp_path / "images")
    for task in TASKS:
        set_split(images / task, ["train"] * len(read_table(images / task)))
    metrics, message = run((images, world[1]), tmp_path / "out", fine_tuning=None)
    assert metrics == {"start": {}, "trained": {}} and "no task" in message


def test_params__a_linear_probe_that_trains_the_encoder_is_refused():
    with pytest.raises(ValueError, match=r"encoder_rate is 0\.01"):
        params(linear=LINEAR | {"encoder_rate": 0.01, "augmentation": None})


def test_main__its_key_follows_what_it_reads(world, tmp_path, monkeypatch):
    files = ["0/dots/table.parquet", "1/config.json", "1/start/config.json"]
    assert_key_follows(files, lambda given: run(given, tmp_path / "out"), world, tmp_path, monkeypatch)
