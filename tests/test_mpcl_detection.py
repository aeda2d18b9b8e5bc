"""Detection over a pretrained encoder: learns drawn squares, stands beside the print, and runs in the graph."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from polygrain.encoder.model import save
from polygrain.mpcl.report.published import Setting
from stages.mpcl_detection import Drops, Params, main, printed, table
from tests.helpers.pretraining_world import RESNET, network
from tests.helpers.project import edit, new_project, repro
from tests.helpers.small import lists
from tests.test_profiles import composed

RUN = {"framework": "moco_v2", "heads": 1, "projectors": "shared", "variant": "plain", "contrast": 0.0}
RUN |= {"balance": "none"}
SMALL = {"epochs": 1, "drops": [], "warmup": 0.0, "batch": 4, "learning_rate": 0.02, "weight_decay": 0.0001}
SMALL |= {"precision": "float32", "sides": [64], "longest": 96, "boxes": 16, "proposals": 40}


def write_coco(root, train=8, test=4, side=64):
    """Squares of two colours on noise, laid out as COCO's."""
    rng = np.random.default_rng(0)
    (root / "annotations").mkdir(parents=True)
    for part, count in (("train2017", train), ("val2017", test)):
        (root / part).mkdir()
        images, items = [], []
        for number in range(count):
            pixels = rng.integers(0, 60, (side, side, 3), dtype=np.uint8)
            x, y, size, kind = *rng.integers(2, 28, 2).tolist(), 32, number % 2
            pixels[y : y + size, x : x + size, kind] = 240
            Image.fromarray(pixels).save(root / part / f"{number}.jpg", quality=95)
            images.append({"id": number, "file_name": f"{number}.jpg"})
            items.append({"image_id": number, "bbox": [x, y, size, size], "category_id": 1 - kind, "iscrowd": 0})
        content = json.dumps({"images": images, "annotations": items})
        (root / f"annotations/instances_{part}.json").write_text(content)
    return root


@pytest.fixture
def world(tmp_path):
    (tmp_path / "encoder").mkdir()
    save(network(RESNET), tmp_path / "encoder")
    return tmp_path / "encoder", write_coco(tmp_path / "coco")


def listed(path):
    return lists(mpcl={"m1": RUN}, mpcl_detections={"m1": {"run": "m1", "path": str(path)}})


def run(world, output, **changes):
    encoder, path = world
    params = Params(**(SMALL | changes))
    common = {"network": {"architecture": "resnet50"}, "epochs": 1, "batch": 8}
    return main(encoder, path, output, name="m1", params=params, lists=listed(path), seed=0, **common)


def test_lists__a_detector_is_of_a_run_that_is_there():
    with pytest.raises(ValueError, match=r"mpcl_detections\.a\.run is 'gone'; known here: m1"):
        lists(mpcl={"m1": RUN}, mpcl_detections={"a": {"run": "gone", "path": "x"}})


def test_factor__rises_stays_and_falls_to_a_tenth_twice():
    schedule = Drops(12, 0.5, 0.0, (8, 11))
    assert [schedule.factor(epoch) for epoch in (0, 0.25, 0.5, 7.9)] == [0, 0.5, 1, 1]
    assert [schedule.factor(epoch) for epoch in (8, 11)] == pytest.approx([0.1, 0.01])
    assert Drops(12, 0.0, 0.0, ()).factor(0.1) == 1


def test_profile__each_detector_has_its_printed_numbers():
    values = composed("imagenet-detection")
    found = lists(mpcl=values["mpcl"], mpcl_detections=values["mpcl_detections"])
    common = [values["mpcl_encoder"][key] for key in ("epochs", "batch")]
    setting = Setting(list(values["tasks"]), values["mpcl_encoder"]["network"]["architecture"], *common)
    first = {name: printed(found.mpcl[item.run], setting)["box AP"] for name, item in found.mpcl_detections.items()}
    assert first == {"m1": 39.0, "pcr4": 39.6, "both4": 40.0}
    assert printed(found.mpcl["m1"].model_copy(update={"heads": 2}), setting) == {}
    assert printed(found.mpcl["m1"], replace(setting, epochs=100)) == {}


def test_table__the_difference_where_a_number_is_printed():
    lines = table({"AP": 0.41, "AP50": 0.6}, {"box AP": 40.0}).splitlines()
    assert lines[2:] == ["| AP | 41.0 | 40.0 | +1.0 |", "| AP50 | 60.0 | | |"]


@pytest.mark.slow
def test_main__writes_the_detector_its_history_and_its_precision(world, tmp_path):
    said = run(world, tmp_path / "out")
    assert said.startswith("images: 8 to train on, 4 to test; AP ")
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert list(metrics) == ["AP", "AP50", "AP75"] and all(0 <= value <= 1 for value in metrics.values())
    assert (tmp_path / "out/history.csv").read_text().startswith("epoch,loss\n1,")
    assert "| AP50 |" in (tmp_path / "out/table.md").read_text()
    run(world, tmp_path / "again")
    for file in ("weights.safetensors", "metrics.json", "history.csv"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


@pytest.mark.slow
def test_main__learns_to_find_drawn_squares(world, tmp_path):
    run((world[0], write_coco(tmp_path / "more", 32, 8)), tmp_path / "out", epochs=8, drops=[6], learning_rate=0.08)
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert metrics["AP50"] > 0.75, metrics


@pytest.mark.slow
def test_repro__pretrains_then_detects_and_never_twice(tmp_path):
    project = new_project(tmp_path / "project")
    write_coco(project / "raw/coco")

    def change(values):
        values["mpcl"] = {"m1": RUN}
        values["mpcl_detections"] = {"m1": {"run": "m1", "path": "raw/coco"}}
        values["mpcl_encoder"] |= {"network": {"architecture": "resnet10t", "kwargs": {}, "side": 32}, "epochs": 1}
        values["mpcl_encoder"] |= {"batch": 8, "least_spread": 0.0}
        values["mpcl_encoder"]["moco_v2"] |= {"queue": 16, "norm_splits": 2}
        values["mpcl_detection"] = SMALL

    edit(project, change)
    assert repro(project, "mpcl_detection") == ["images@shapes", "mpcl_encoder@m1", "mpcl_detection@m1"]
    assert (project / "data/mpcl_detection/m1/table.md").exists()
    assert repro(project, "mpcl_detection") == []
