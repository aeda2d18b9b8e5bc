import numpy as np
import pytest
from pydantic import ValidationError

from polygrain.store import arrays
from polygrain.store.collection import read_table
from stages.gsp_collage import Params, main
from tests.helpers.small import lists, write_images

PARAMS = Params(cell=8)
SPEC = {"targets": "dots", "backgrounds": "bars", "background_classes": [], "copies": 2}


def run(tmp_path, seed=0, **changes):
    images = tmp_path / "images"
    if not images.exists():
        write_images(images)
    listed = lists(gsp_collages={"both": SPEC | changes})
    output = tmp_path / "collage"
    message = main(images, output, collages="both", params=PARAMS, lists=listed, seed=seed)
    return message, read_table(output), arrays.open(output / "pixels.zarr")[:], (output / "places.csv").read_text()


def test_main__training_classes_twice_and_unseen_classes_once(tmp_path):
    message, table, pixels, places = run(tmp_path)
    splits, labels = table["split"].to_pylist(), table["label"].to_pylist()
    assert message == "48 training and 24 test collages of 16 px" and pixels.shape == (72, 16, 16, 3)
    assert splits == ["train"] * 48 + ["test"] * 24 and set(table["task"].to_pylist()) == {"both"}
    assert set(labels[:48]) == {0, 1, 2} and set(labels[48:]) == {3, 4, 5}
    assert len(set(table["path"].to_pylist())) == 72 and len(places.splitlines()) == 73


def test_main__two_runs_are_equal_and_another_seed_is_not(tmp_path):
    first, again, other = (run(tmp_path, seed)[2] for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()


def test_main__raises_for_classes_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="tree"):
        run(tmp_path, background_classes=["tree"])
    with pytest.raises(ValueError, match="no test image"):
        run(tmp_path, background_classes=["0"])


def cells_of(places):
    return [int(line.split(",")[1]) for line in places.splitlines()[1:]]


def test_main__targets_alone_are_the_targets_of_the_collages(tmp_path):
    changes = {"background_classes": ["0", "5"], "copies": 1}
    message, table, alone, places = run(tmp_path, backgrounds=None, **changes)
    assert message == "16 training and 16 test collages of 8 px" and alone.shape == (32, 8, 8, 3)
    assert set(table["class_name"].to_pylist()) == {"1", "2", "3", "4"} and set(cells_of(places)) == {0}
    _, table, collages, places = run(tmp_path / "again", backgrounds="dots", **changes)
    assert set(table["class_name"].to_pylist()) == {"1", "2", "3", "4"}
    for target, collage, cell in zip(alone, collages, cells_of(places), strict=True):
        assert np.array_equal(collage.reshape(2, 8, 2, 8, 3)[cell // 2, :, cell % 2], target)


def test_main__copies_of_targets_alone_are_refused(tmp_path):
    with pytest.raises(ValidationError, match="copies"):
        run(tmp_path, backgrounds=None)
