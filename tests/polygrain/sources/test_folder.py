import errno
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from polygrain.sources import folder


def plant(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


@pytest.mark.parametrize(
    ("files", "images", "rejected"),
    [
        (
            ["b/2.JPG", "b/1.png", "a/x.webp", "a/.hidden.png", ".git/y.png", "b/deep/2.jpg", "cover.jpg"],
            {"a/x.webp": "a", "b/1.png": "b", "b/2.JPG": "b", "b/deep/2.jpg": "b"},
            {"cover.jpg": "image beside the class folders", "a/.hidden.png": "hidden", ".git/": "hidden"},
        ),
        (
            ["2.jpg", "1.jpg", "notes.txt", "empty/readme.md"],
            {"1.jpg": "", "2.jpg": ""},
            {"notes.txt": "not an image", "empty/readme.md": "not an image"},
        ),
    ],
)
def test_find__classes_or_flat_and_what_lies_beside(tmp_path: Path, files, images, rejected) -> None:
    plant(tmp_path, *files)
    assert folder.find(tmp_path) == (images, rejected)


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


@pytest.mark.parametrize(
    "name",
    ["#recycle", "#SNAPSHOT", "@eaDir", "$Recycle.Bin", "System Volume Information", "lost+found", ".Trash-1000/files"],
)
def test_find__what_was_deleted_is_no_class(tmp_path: Path, name: str) -> None:
    plant(tmp_path, "1.jpg", "2.jpg", f"{name}/3.jpg")
    images, rejected = folder.find(tmp_path)
    assert images == {"1.jpg": "", "2.jpg": ""} and list(rejected.values()) == ["hidden"]


@pytest.mark.parametrize(
    ("files", "classes"),
    [
        (["train/1.jpg", "Valid/2.jpg", "test_set/3.jpg"], {""}),
        (["images/train2017/1.jpg", "images/val2017/2.jpg", "labels/train2017/1.txt"], {""}),
        (["train/images/1.jpg", "train/labels/1.txt", "test/images/2.jpg"], {""}),
        (["training/1.jpg", "cover.jpg"], {""}),
        (["train_1/1.jpg", "images_002/2.jpg", "query/3.jpg", "unlabeled/4.jpg", "Held-Out/5.jpg"], {""}),
        (["thumbs/1.jpg", "test/2.jpg", "images/3.jpg"], {"thumbs", "test", "images"}),
        (["train/a/1.jpg", "train/b/2.jpg", "val/a/3.jpg", "test/4.jpg"], {"a", "b"}),
        (["train/1.jpg", "bus/2.jpg"], {"train", "bus"}),
        (["a/x/1.jpg", "b/x/y/2.jpg"], {"a", "b"}),
        (["a/train/1.jpg", "b/test/2.jpg", "c/3.jpg"], {"a", "b", "c"}),
        (["train/a/images/1.jpg", "val/b/2.jpg", "val/b/c/d/3.jpg"], {"a", "b"}),
        ([f"{unicodedata.normalize(form, 'é')}/{form}.jpg" for form in ("NFC", "NFD")] + ["b/1.jpg"], {"b", "\xe9"}),
    ],
)
def test_find__splits_and_spellings_are_no_classes(tmp_path: Path, files: list[str], classes: set[str]) -> None:
    plant(tmp_path, *files)
    assert set(folder.find(tmp_path).images.values()) == classes


def test_walk__an_error_of_the_machine_is_no_property_of_a_link(tmp_path: Path, monkeypatch) -> None:
    plant(tmp_path, "1.jpg")
    (tmp_path / "class").symlink_to("class")
    assert folder.walk(tmp_path) == (["1.jpg"], {"class": "not an image"})
    monkeypatch.setattr(folder, "NOWHERE", ())  # any other error than one of these
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        folder.walk(tmp_path)


def test_walk__names_that_say_nothing_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    jpeg, webp = b"\xff\xd8\xff\xe0" + bytes(20), b"RIFF\1\1\1\1WEBPVP8 "
    images = {"1": jpeg, "2.large": b"\x89PNG\r\n\x1a\n", "3.2024": webp, "4.HEIC": jpeg, "5.jpe": jpeg, "6.gif": b"x"}
    others = {
        "1.jpg_original": jpeg,
        "1.jpg~": jpeg,
        "1.bak": jpeg,
        "1.THM": jpeg,
        "a.json": jpeg,
        "b.xmp": b"<x>",
        "c": b"",
    }
    for name, content in (images | others).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").symlink_to(__file__)
    os.mkfifo(tmp_path / "pipe")
    found, rejected = folder.walk(tmp_path)
    assert found == sorted(images) and rejected == dict.fromkeys(sorted([*others, "link", "pipe"]), "not an image")


def test_walk__a_file_of_no_image_s_name_that_may_not_be_read_stops_nothing(tmp_path: Path, monkeypatch) -> None:
    plant(tmp_path, "a/1.jpg", "a/notes")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder, "open", refuse, raising=False)
    assert folder.walk(tmp_path) == (["a/1.jpg"], {"a/notes": "not an image"})


def test_walk__asks_for_links_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, *(f"{i % 3}/{i}.jpg" for i in range(60)))
    (tmp_path / "1/link.jpg").symlink_to("1.jpg")
    asked = []
    for name in ("stat", "lstat"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *path, of=call, **how: asked.append(path) or of(*path, **how))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda path, mode: not os.fspath(path).endswith("/2.jpg"))
    images, rejected = folder.walk(tmp_path)
    assert len(images) == 60 and rejected == {"2/2.jpg": "may not be read"} and len(asked) < 30


def test_walk__a_locale_without_utf_8_is_named(tmp_path: Path) -> None:
    plant(tmp_path, "a/1.jpg", "b/\xe9.jpg")
    code = "import pathlib, sys; from polygrain.sources import folder; folder.walk(pathlib.Path(sys.argv[1]))"
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = [subprocess.run([sys.executable, "-c", code, tmp_path / name], env=env, capture_output=True) for name in "ab"]
    assert not run[0].stderr and run[1].stderr.splitlines()[-1].endswith(
        b"set PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8"
    )


def test_require_followed__names_what_dvc_would_stop_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, "a/1.jpg", "b/2.jpg")
    (tmp_path / "a/inside.jpg").symlink_to("1.jpg")
    asked, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: (asked.append(str(path)), stat(path, **how))[1])
    folder.require_followed(tmp_path)
    assert not [path for path in asked if path.endswith(("1.jpg", "2.jpg"))]  # each costs a message on a network's disk
    (tmp_path / "b/.nowhere").symlink_to("gone")
    with pytest.raises(ValueError, match=r"/b/\.nowhere: link leads nowhere, and DVC would stop"):
        folder.require_followed(tmp_path)
    (tmp_path / "b/.nowhere").rename(tmp_path / "b/x\udce9.jpg")
    with pytest.raises(ValueError, match=r"/b/x.xe9\.jpg: name is not valid UTF-8"):
        folder.require_followed(tmp_path)


@pytest.mark.parametrize(
    ("files", "root", "message"),
    [
        ([], "gone", r"gone does not exist: give a folder of images"),
        (["a/1.jpg", "a/2.jpg", "b.jpg"], ".", r"one class folder only \(a, 2 images\) and 1 images beside it"),
        (["a.txt", "b/c.pdf"], ".", r"holds no image.*2 left out, the first: a\.txt: not an image"),
    ],
)
def test_find__what_is_no_task(tmp_path: Path, files: list[str], root: str, message: str) -> None:
    plant(tmp_path, *files)
    with pytest.raises(ValueError, match=message):
        folder.find(tmp_path / root)
