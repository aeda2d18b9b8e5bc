import json

import pytest

from stages import mpcl_probe
from stages.core import backbone
from tests.core.pretraining.world import VIEW, network
from tests.small import TASKS, lists, write_encoder, write_images


def params(**changes):
    linear = {"epochs": 5, "batch": 8, "classifier_rate": 0.3, "encoder_rate": 0, "weight_decay": 0}
    values = {
        "tasks": None,
        "precision": "float32",
        "batch": 16,
        "neighbours": 5,
        "temperature": 0.07,
        "view": VIEW,
        "linear": linear | {"augmentation": None},
        "fine_tuning": linear | {"epochs": 2, "encoder_rate": 0.01, "augmentation": VIEW},
        "shares": [0.01, 0.5],
    }
    return mpcl_probe.Params(**(values | changes))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_encoder(tmp_path / "encoder")
    (folder / "start").mkdir()
    backbone.save(network(seed=1), folder / "start")
    return write_images(tmp_path / "images"), folder


def run(world, output, **changes):
    message = mpcl_probe.main(*world, output, run="run", params=params(**changes), lists=lists(), seed=0)
    return json.loads((output / "metrics.json").read_text()), message


def test_main__measures_both_encoders_on_every_task(world, tmp_path):
    metrics, message = run(world, tmp_path / "out")
    assert list(metrics) == ["start", "trained"]
    names = ["images", "r_precision", "knn", "linear", "fine_0.01", "fine_0.5", "alignment", "uniformity"]
    for part in metrics.values():
        assert list(part) == list(TASKS)
        for values in part.values():
            assert list(values) == names and values["images"] == 12
            assert all(0 <= values[name] <= 1 for name in names[1:6])
            assert 0 <= values["alignment"] <= 4 and values["uniformity"] <= 0
    assert metrics["start"] != metrics["trained"] and message.startswith("linear probe")
    assert metrics["trained"]["dots"]["knn"] > 0.5  # three classes that differ in colour and place


def test_main__two_runs_write_the_same_bytes(world, tmp_path):
    for name in ("a", "b"):
        run(world, tmp_path / name)
    assert (tmp_path / "a/metrics.json").read_bytes() == (tmp_path / "b/metrics.json").read_bytes()


def test_main__a_linear_probe_with_views_trains_on_them(world, tmp_path):
    plain, _ = run(world, tmp_path / "a", fine_tuning=None, tasks=["dots"])
    views, _ = run(world, tmp_path / "b", fine_tuning=None, tasks=["dots"], linear=params().fine_tuning)
    assert list(plain["trained"]) == ["dots"] and "fine_0.5" not in plain["trained"]["dots"]
    assert plain["trained"]["dots"]["r_precision"] == views["trained"]["dots"]["r_precision"]


def test_main__tasks_without_labels_are_left_out(world, tmp_path):
    images = write_images(tmp_path / "flat", labelled=False)
    metrics, message = run((images, world[1]), tmp_path / "out")
    assert metrics == {"start": {}, "trained": {}} and message == "no task has labels"


def test_main__an_unknown_task_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match="names stars; known tasks: dots, bars"):
        run(world, tmp_path / "out", tasks=["stars"])
