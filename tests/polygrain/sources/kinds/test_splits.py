from pathlib import Path

import pytest
from PIL import Image

from polygrain.sources.kinds import kind_of
from polygrain.sources.kinds.splits import read_share
from tests.helpers.layouts import ask


def test_open__the_same_classes_split_as_the_folders_say(tmp_path: Path) -> None:
    for path in ("train/b/2.png", "train/b/1.png", "train/a/1.png", "val/a/9.png", "val/b/9.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").resize((8, 8)).save(tmp_path / path)
    (tmp_path / "val" / "a" / "notes.txt").write_text("x")
    result = kind_of("splits").open(tmp_path, ask(8))
    assert list(result.rows.items()) == [
        ("train/a/1.png", (0, "a", "train")),
        ("train/b/1.png", (1, "b", "train")),
        ("train/b/2.png", (1, "b", "train")),
        ("val/a/9.png", (0, "a", "test")),
        ("val/b/9.png", (1, "b", "test")),
    ]
    assert result.rejected == {"val/a/notes.txt": "not an image"}
    assert [outcome.width for outcome in result.outcomes] == [8] * 5
    (tmp_path / "val/b").rename(tmp_path / "val/c")
    with pytest.raises(ValueError, match="2 classes are in one of train and val only, the first: b"):
        kind_of("splits").open(tmp_path, ask(8))


TRAINING = ["train/a/a_1.jpg", "train/a/a_2.jpg", "train/b/b_1.jpg", "train/b/same.jpg", "train/a/same.jpg"]


@pytest.mark.parametrize(("share", "name"), [(0.01, "1percent.txt"), (0.005, "0.5percent.txt")])
def test_read_share__paths_in_the_lists_order(tmp_path: Path, share: float, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} does not exist, .*listed_shares"):
        read_share(tmp_path, share, TRAINING)
    (tmp_path / name).write_text("b_1.jpg\r\n\na_2.jpg \n", encoding="utf-8-sig")
    assert read_share(tmp_path, share, TRAINING) == ["train/b/b_1.jpg", "train/a/a_2.jpg"]


@pytest.mark.parametrize("text", ["a_1.jpg\nc_1.jpg\n", "same.jpg\n", "a_1.jpg\na_1.jpg\n", "../a_1.jpg\n"])
def test_read_share__a_list_of_other_images_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "1percent.txt").write_text(text)
    with pytest.raises(ValueError, match="one of the training images"):
        read_share(tmp_path, 0.01, TRAINING)
