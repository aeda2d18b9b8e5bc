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
    wanted = lists(gsp_collages={"both": SPEC | changes})
    output = tmp_path / "collage"
    said = main(images, output, collages="both", params=PARAMS, lists=wanted, seed=seed)
    return said, read_table(output), arrays.open(output / "pixels.zarr")[:], (output / "places.csv").read_text()


def test_main__training_classes_twice_and_unseen_classes_once(tmp_path):
    said, table, pixels, places = run(tmp_path)
    splits, labels = table["split"].to_pylist(), table["label"].to_pylist()
    assert said == "48 training and 24 test collages of 16 px" and pixels.shape == (72, 16, 16, 3)
    assert splits == ["train"] * 48 + ["test"] * 24 and set(table["task"].to_pylist()) == {"both"}
    assert set(labels[:48]) == {0, 1, 2} and set(labels[48:]) == {3, 4, 5}
    assert len(set(table["path"].to_pylist())) == 72 and len(places.splitlines()) == 73


def test_main__the_target_is_in_the_cell_that_places_name(tmp_path):
    _, table, pixels, places = run(tmp_path)
    targets = arrays.open(tmp_path / "images/dots/pixels.zarr")[:]
    row, cell = map(int, places.splitlines()[60].split(","))
    path = table["path"].to_pylist()[row].split("#")[0]
    source = targets[read_table(tmp_path / "images/dots")["path"].to_pylist().index(path)]
    y, x = 8 * (cell // 2), 8 * (cell % 2)
    found = pixels[row, y : y + 8, x : x + 8].astype(float)
    assert np.abs(found.mean((0, 1)) - source.astype(float).mean((0, 1))).max() < 3


def test_main__two_runs_are_equal_and_another_seed_is_not(tmp_path):
    first, again, other = (run(tmp_path, seed)[2] for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()


def test_main__classes_of_the_same_task_can_be_the_background(tmp_path):
    _, table, _, _ = run(tmp_path, backgrounds="dots", background_classes=["0", "5"])
    assert set(table["class_name"].to_pylist()) == {"1", "2", "3", "4"}


def test_main__raises_for_classes_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="background_classes names 'tree', which is no class of bars"):
        run(tmp_path, background_classes=["tree"])
    with pytest.raises(ValueError, match="bars has no test image for the collages: name other tasks"):
        run(tmp_path, background_classes=["0"])


def test_main__without_backgrounds_the_targets_stand_alone(tmp_path):
    said, table, pixels, places = run(tmp_path, backgrounds=None, background_classes=["0", "5"], copies=1)
    assert said == "16 training and 16 test collages of 8 px" and pixels.shape == (32, 8, 8, 3)
    assert set(table["class_name"].to_pylist()) == {"1", "2", "3", "4"}
    assert {line.split(",")[1] for line in places.splitlines()[1:]} == {"0"}
    both = run(tmp_path / "again", backgrounds="dots", background_classes=["0", "5"], copies=1)
    cells = [
        pixels.reshape(2, 8, 2, 8, 3)[c // 2, :, c % 2] for pixels, c in zip(both[2], cell_of(both[3]), strict=True)
    ]
    assert np.array_equal(pixels, cells)


def cell_of(places):
    return [int(line.split(",")[1]) for line in places.splitlines()[1:]]


def test_main__copies_of_targets_alone_are_refused(tmp_path):
    with pytest.raises(ValidationError, match="copies is 2; without backgrounds all would be alike: set it to 1"):
        run(tmp_path, backgrounds=None)
