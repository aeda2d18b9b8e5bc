import hashlib
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from polygrain.new.folders import Folder, examine, look, task_names
from polygrain.sources import look as looking
from tests.helpers import streams


def paint(folder: Path, *names: str, size: tuple[int, int] = (8, 8)) -> Path:
    """Images of a colour for each name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, tuple(hashlib.sha256(name.encode()).digest()[:3])).save(folder / name)
    return folder


def test_examine__counts_what_has_the_name_of_an_image(tmp_path):
    raw = paint(tmp_path / "raw", "a/1.png", "a/2.png", "b/1.png", "beside.png", "c/.hidden.png")
    (raw / "a/notes.txt").write_text("x")
    found = examine(str(raw))
    assert (found.classes, found.train_images) == ({"a": 2, "b": 1}, 2)
    assert found.describe() == "3 images of 2 classes (a, b), about 2 of them to train on"
    assert found.left_out == {".txt": 1, "hidden": 1, "image beside the class folders": 1}
    flat = examine(str(paint(tmp_path / "flat", "1.png", "2.png")))
    splits = examine(str(paint(tmp_path / "splits", "train/1.png", "test/2.png")))
    assert splits.classes == {"": 2} and ", not taken for classes: test, train" in splits.describe()
    assert flat.describe() == "2 images without labels, so not evaluated" and look(flat).lines == []


def test_unmeasured__says_what_too_few_images_leave_open():
    def words(**classes):
        return [line.split(",")[0] for line in Folder("folder", Path("x"), classes).unmeasured()]

    assert words(a=40, b=40) == [] and words(a=40, b=9) == ["39 images to train on"]
    assert words(a=1, b=1) == ["no class has two images", "2 images to train on"]


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """Classes a and b of ten images each, and what a run leaves out."""
    raw = paint(tmp_path / "raw", *[f"{name}/{i}.png" for name in "ab" for i in range(10)])
    paint(raw, "a/wide.png", "b/x/y/tall.png", size=(16, 10))
    for first, second in (("a/1.png", "b/same.png"), ("a/2.png", "a/same.png"), ("b/1.png", "a/also.PNG")):
        shutil.copy(raw / first, raw / second)
    (raw / "b/cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (raw / "b/empty.gif").touch()
    for name in ("1.psd", "b/2.PSD", "notes.txt"):
        (raw / name).write_bytes(b"8BPS")
    return raw


@pytest.mark.parametrize("is_packed", [False, True])
def test_look__by_reason_and_what_costs_more(lossy, tmp_path, is_packed):
    given = Path(shutil.make_archive(str(tmp_path / "raw"), "zip", lossy)) if is_packed else lossy
    found = examine(str(given))
    assert found.classes == {"a": 13, "b": 14}
    assert look(found).lines == [
        "8 of 30 left out: 3 copied, 2 .psd, 2 damaged, 1 .txt",
        "2 of 27 images longer than 1.4 to 1, at more cost",
        "2 pictures in two classes, counted in the first of them only",
    ]


def test_look__a_stream_is_opened_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "MOST_STREAMED", 9)
    members = [(f"{i}.png", streams.png(i % 8)) for i in range(12)]
    lines = look(examine(str(streams.tar(tmp_path / "x.tar", *members, ("x.psd", b"8BPS"))))).lines
    assert lines[0] == "2 of 13 left out: 1 .psd, 1 copied" and lines[1].startswith("8 of 9 images longer")
    assert lines[2].startswith("3 images not opened") and len(lines) == 3


def test_examine__reads_each_folder_once(tmp_path, monkeypatch):
    raw, read, scandir = paint(tmp_path / "raw", "a/1.png", "b/2.png", ".git/3.png"), [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(str(path)) or scandir(path))
    examine(str(raw))
    assert sorted(read) == sorted(map(str, (raw, raw / "a", raw / "b", raw / ".git")))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gone", "gone does not exist"),
        ("empty", "holds no image"),
        ("single", r"one class .* only \(a"),
        ("hats.zip", r"hats\.zip is no zip"),
        ("bin", r"\.git/x: link leads nowhere"),
        ("odd", r"odd/a/x\.jpg: link leads nowhere"),
        ("cut.tar", r"cut\.tar is damaged or cut off"),
        ("s3://key:secret@bucket/x", r"is no s3://bucket/prefix"),
    ],
)
def test_examine__says_what_is_wrong(tmp_path, given, message):
    paint(tmp_path / "single", "a/1.png", "a/2.png")
    paint(tmp_path / "odd", "a/1.png", "b/1.png")
    (tmp_path / "odd/a/x.jpg").symlink_to("gone.jpg")
    (paint(tmp_path / "bin", "1.png", ".git/2.png") / ".git/x").symlink_to("gone")
    for file in ("empty/notes.txt", "hats.zip", "cut.tar"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(bytes(100))
    with pytest.raises(ValueError, match=message):
        examine(given if "://" in given else str(tmp_path / given))


def test_task_names__are_unique_and_plain():
    paths = ["/x/Food 101", "/y/food-101", "/z/__", "/z/Ä", "/z/food_101", "/z/shards.tar", "s3://b/shoes/"]
    assert list(task_names(["/a/mean", "/b/Mean"])) == ["mean-2", "mean-3"]  # the report has a column mean
    names = ["food-101", "food-101-2", "images", "images-2", "food_101", "shards", "shoes"]
    assert list(task_names(paths)) == names
    assert list(task_names([f"/a/M{o}bel" for o in ("ö", "o\u0308")])) == ["m-bel", "m-bel-2"]
    with pytest.raises(ValueError, match="twice"):
        task_names(["/a", "/a"])
