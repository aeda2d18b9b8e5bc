from pathlib import Path

import pytest

from polygrain.store import shares, sums


def test_read__is_what_was_written(tmp_path: Path) -> None:
    shares.write(tmp_path, 0.1, ["train/ä/1.jpg", "train/b/2.jpg"])
    assert shares.read(tmp_path, 0.1) == ["train/ä/1.jpg", "train/b/2.jpg"]
    assert shares.read(tmp_path, 0.01) is None


def test_read__a_list_that_was_changed_is_named(tmp_path: Path) -> None:
    shares.write(tmp_path, 0.1, ["train/b/2.jpg"])
    sums.write(tmp_path)
    (tmp_path / "shares/10percent.txt").write_text("train/b/3.jpg\n")
    with pytest.raises(ValueError, match=r"10percent.txt is missing or damaged"):
        shares.read(tmp_path, 0.1)
