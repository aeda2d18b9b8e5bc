import os
from pathlib import Path

import pytest

from polygrain.sources import folder


def plant(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_find__classes_and_what_lies_beside_them(tmp_path: Path) -> None:
    plant(tmp_path, "b/2.JPG", "b/1.png", "a/x.webp", "a/.hidden.png", ".git/y.png", "b/deep/2.jpg", "cover.jpg")
    images, rejected = folder.find(tmp_path)
    assert images == {"a/x.webp": "a", "b/1.png": "b", "b/2.JPG": "b"}
    assert rejected == {
        "cover.jpg": "image beside the class folders",
        "b/deep/2.jpg": "deeper than <class>/<image>, which is not read",
        "a/.hidden.png": "hidden",
        ".git/": "hidden",
    }


def test_find__flat(tmp_path: Path) -> None:
    plant(tmp_path, "2.jpg", "1.jpg", "notes.txt", "empty/readme.md")
    images, rejected = folder.find(tmp_path)
    assert images == {"1.jpg": "", "2.jpg": ""}
    assert rejected == {
        "notes.txt": "not an image",
        "empty/readme.md": "not an image",
    }


def test_find__follows_no_link_out_and_takes_no_undecodable_name(tmp_path: Path) -> None:
    plant(tmp_path, "in/a.jpg", "in/b.jpg", "out/secret.jpg")
    (tmp_path / "in/inside.jpg").symlink_to("a.jpg")
    (tmp_path / "in/outside.jpg").symlink_to(tmp_path / "out/secret.jpg")
    (tmp_path / "in/nowhere.jpg").symlink_to("gone.jpg")
    (tmp_path / "in/loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "in/whole").symlink_to(tmp_path / "out")
    (tmp_path / "door").symlink_to("in")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/\xff.jpg")).touch()
    images, rejected = folder.find(tmp_path / "door")
    assert sorted(images) == ["a.jpg", "b.jpg", "inside.jpg"]
    assert rejected == {
        "outside.jpg": "link leads outside the folder",
        "whole": "link leads outside the folder",
        "nowhere.jpg": "link leads nowhere",
        "loop.jpg": "link leads nowhere",
        "\\xff.jpg": "name is not valid UTF-8",
    }


def test_require_followed__names_what_dvc_would_stop_at(tmp_path: Path) -> None:
    plant(tmp_path, "a/1.jpg", "b/2.jpg")
    (tmp_path / "a/inside.jpg").symlink_to("1.jpg")
    folder.require_followed(tmp_path)
    for name in ("a/pipe.jpg", "b/.nowhere", "b/x\udce9.jpg"):
        entry = tmp_path / name
        if "pipe" in name:
            os.mkfifo(entry)
        elif "nowhere" in name:
            entry.symlink_to("gone")
        else:
            entry.touch()
        with pytest.raises(ValueError, match=f"/{entry.name[0]}.*: (not a|link|name).* DVC would stop"):
            folder.require_followed(tmp_path)
        entry.unlink()


@pytest.mark.parametrize("name", [".dvcignore", "a/.dvcignore", "a/.dvc/config"])
def test_require_followed__names_what_another_dvc_repository_has_left(tmp_path: Path, name: str) -> None:
    """DVC raises at such a file, and passes over the images beside such a folder."""
    plant(tmp_path, "a/1.jpg", "b/2.jpg", ".dvc/config")
    folder.require_followed(tmp_path)  # at the top, DVC reads the images beside it
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"DVC repository.* DVC would (stop there; remove|pass over: rename)"):
        folder.require_followed(tmp_path)


def test_require_followed__asks_no_plain_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is a message to the server of a network's disk."""
    plant(tmp_path, "a/1.jpg", "b/c/2.jpg")
    asked, stat, access = [], os.stat, os.access
    monkeypatch.setattr(os, "stat", lambda path, **how: (asked.append(str(path)), stat(path, **how))[1])
    monkeypatch.setattr(os, "access", lambda path, mode: (asked.append(str(path)), access(path, mode))[1])
    folder.require_followed(tmp_path)
    assert not [path for path in asked if path.endswith(".jpg")]
    folder.require_followed(tmp_path, every=True)
    assert len({path for path in asked if path.endswith(".jpg")}) == 2


@pytest.mark.parametrize(
    ("files", "root", "message"),
    [
        (["a/x/1.jpg", "b/x/1.jpg"], ".", r"give each of them .*\(a, b\)"),
        ([], "gone", r"gone does not exist: give a folder of images"),
        (["a/1.jpg", "a/2.jpg", "b.jpg"], ".", r"one class folder only \(a, 2 images\) and 1 images beside it"),
        (["a.txt", "b/c.pdf"], ".", r"holds no image.*2 left out, the first: a\.txt: not an image"),
    ],
)
def test_find__what_is_no_task(tmp_path: Path, files: list[str], root: str, message: str) -> None:
    plant(tmp_path, *files)
    with pytest.raises(ValueError, match=message):
        folder.find(tmp_path / root)
