import os
import sys
from pathlib import Path

import pytest

from polygrain.sources import folder


def plant(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_find__classes(tmp_path: Path) -> None:
    plant(tmp_path, "b/2.JPG", "b/1.png", "a/x.webp", "a/.hidden.png", ".git/y.png")
    assert folder.find(tmp_path) == ({"a/x.webp": "a", "b/1.png": "b", "b/2.JPG": "b"}, {})


def test_find__flat(tmp_path: Path) -> None:
    plant(tmp_path, "2.jpg", "1.jpg", "notes.txt", "empty/readme.md")
    images, rejected = folder.find(tmp_path)
    assert images == {"1.jpg": "", "2.jpg": ""}
    assert rejected == {
        "notes.txt": "not an image",
        "empty/": "folder without images directly in it",
        "empty/readme.md": "not an image",
    }


def test_find__sets_a_mixture_aside(tmp_path: Path) -> None:
    plant(tmp_path, "a/1.jpg", "b/1.jpg", "b/deep/2.jpg", "cover.jpg")
    images, rejected = folder.find(tmp_path)
    assert images == {"a/1.jpg": "a", "b/1.jpg": "b"}
    assert rejected == {
        "cover.jpg": "image beside the class folders",
        "b/deep/": "folder within a class folder, which is not read",
    }


def test_find__follows_no_link_out(tmp_path: Path) -> None:
    plant(tmp_path, "in/a.jpg", "in/b.jpg", "out/secret.jpg")
    (tmp_path / "in/inside.jpg").symlink_to("a.jpg")
    (tmp_path / "in/outside.jpg").symlink_to(tmp_path / "out/secret.jpg")
    (tmp_path / "in/nowhere.jpg").symlink_to("gone.jpg")
    (tmp_path / "in/loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "in/whole").symlink_to(tmp_path / "out")
    (tmp_path / "door").symlink_to("in")
    images, rejected = folder.find(tmp_path / "door")
    assert sorted(images) == ["a.jpg", "b.jpg", "inside.jpg"]
    assert rejected == {
        "outside.jpg": "link leads outside the folder",
        "whole": "link leads outside the folder",
        "nowhere.jpg": "link leads nowhere",
        "loop.jpg": "link leads nowhere",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems do not take such names")
def test_find__sets_undecodable_names_aside(tmp_path: Path) -> None:
    plant(tmp_path, "a.jpg")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jpg")).touch()
    assert folder.find(tmp_path) == ({"a.jpg": ""}, {"\\xff.jpg": "name is not valid UTF-8"})


def test_find__raise_on_missing_root(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing-here does not exist: give a folder of images"):
        folder.find(tmp_path / "nothing-here")
    plant(tmp_path, "file.jpg")
    with pytest.raises(ValueError, match=r"file\.jpg is not a folder"):
        folder.find(tmp_path / "file.jpg")


def test_find__raise_on_single_class(tmp_path: Path) -> None:
    plant(tmp_path, "cats/1.jpg", "cats/2.jpg", "other.jpg")
    with pytest.raises(ValueError, match=r"one class folder only \(cats, 2 images\) and 1 images beside it"):
        folder.find(tmp_path)


def test_find__raise_on_no_image(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no image.*0 left out"):
        folder.find(tmp_path)
    plant(tmp_path, "a.txt", "b/c.pdf")
    with pytest.raises(ValueError, match=r"holds no image.*3 left out, the first: a\.txt: not an image"):
        folder.find(tmp_path)
