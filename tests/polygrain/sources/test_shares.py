from pathlib import Path

import pytest

from polygrain.sources import shares

TRAINING = ["train/a/a_1.jpg", "train/a/a_2.jpg", "train/b/b_1.jpg", "train/b/same.jpg", "train/a/same.jpg"]


@pytest.mark.parametrize(("share", "name"), [(0.01, "1percent.txt"), (0.1, "10percent.txt"), (0.005, "0.5percent.txt")])
def test_read__paths_in_the_lists_order(tmp_path: Path, share: float, name: str) -> None:
    (tmp_path / name).write_text("b_1.jpg\n\na_2.jpg \n")
    assert shares.read(tmp_path, share, TRAINING) == ["train/b/b_1.jpg", "train/a/a_2.jpg"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "a_1.jpg\nc_1.jpg\n",
            r"names 1 images that are not one of the 5 training images.*'c_1.jpg' .met 0 times",
        ),
        ("same.jpg\n", r"'same.jpg' .met 2 times"),
        ("a_1.jpg\na_1.jpg\n", "names 'a_1.jpg' twice"),
        ("\n", "names no image"),
        ("../a_1.jpg\n", "met 0 times"),
        ("x" * 10_000, "'x{80}' "),
    ],
)
def test_read__a_list_of_other_images_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "1percent.txt").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        shares.read(tmp_path, 0.01, TRAINING)


def test_read__a_missing_list_is_named_with_the_value_that_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"1percent.txt does not exist, which images.listed_shares asks for with 0"):
        shares.read(tmp_path, 0.01, TRAINING)


def test_read__a_list_beyond_all_measure_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MOST_BYTES", 4)
    (tmp_path / "1percent.txt").write_text("a_1.jpg\n")
    with pytest.raises(ValueError, match="has 8 bytes; a list has at most 4"):
        shares.read(tmp_path, 0.01, TRAINING)
