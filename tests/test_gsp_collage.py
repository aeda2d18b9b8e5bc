import numpy as np
import pytest

from polygrain.store import arrays
from polygrain.store.image_table import read_table
from stages.gsp_collage import Params, main
from tests.helpers.small import lists, write_images

SPEC = {"targets": "dots", "backgrounds": "bars", "background_classes": [], "copies": 2}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("world") / "images")


def run(images, output, seed=0, **changes):
    """The splits, labels and names of the classes, the pixels, and the cell of each target."""
    listed = lists(gsp_collages={"both": SPEC | changes})
    main(images, output, collages="both", params=Params(cell=8), lists=listed, seed=seed)
    table = read_table(output)
    lines = (output / "places.csv").read_text().splitlines()
    assert len(set(table["path"].to_pylist())) == len(table) == len(lines) - 1
    columns = [table[name].to_pylist() for name in ("split", "label", "class_name")]
    return *columns, arrays.open(output / "pixels.zarr")[:], [int(line.split(",")[1]) for line in lines[1:]]


def test_main__training_classes_twice_and_unseen_classes_once(images, tmp_path):
    splits, labels, _, pixels, _ = run(images, tmp_path / "out")
    assert splits == ["train"] * 48 + ["test"] * 24 and pixels.shape == (72, 16, 16, 3)
    assert set(labels[:48]) == {0, 1, 2} and set(labels[48:]) == {3, 4, 5}
    again, other = (run(images, tmp_path / f"again{seed}", seed)[3] for seed in (0, 1))
    assert (pixels == again).all() and (pixels != other).any()


@pytest.mark.parametrize(("listed", "word"), [("tree", "tree"), ("0", "no test image")])
def test_main__refuses(images, tmp_path, listed, word):
    with pytest.raises(ValueError, match=word):
        run(images, tmp_path / "out", background_classes=[listed])


def test_main__targets_alone_are_the_targets_of_the_collages(images, tmp_path):
    changes = {"background_classes": ["0", "5"], "copies": 1}
    splits, _, names, alone, cells = run(images, tmp_path / "alone", backgrounds=None, **changes)
    assert splits == ["train"] * 16 + ["test"] * 16 and alone.shape == (32, 8, 8, 3) and set(cells) == {0}
    _, _, same_names, collages, cells = run(images, tmp_path / "beside", backgrounds="dots", **changes)
    assert names == same_names and set(names) == {"1", "2", "3", "4"}
    for target, collage, cell in zip(alone, collages, cells, strict=True):
        assert np.array_equal(collage.reshape(2, 8, 2, 8, 3)[cell // 2, :, cell % 2], target)
