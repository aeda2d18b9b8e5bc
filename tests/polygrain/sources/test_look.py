import os
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polygrain.new import folders
from polygrain.sources import look
from tests.helpers import streams


def test_look_at__some_of_many_and_large_files_are_not_read_whole(tmp_path: Path, monkeypatch) -> None:
    for i in range(10):
        pixels = np.full((64, 90 + i % 2, 3), i, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.bmp")
        os.truncate(tmp_path / f"{i}.bmp", 10**9)  # sparse, all of one size
    images = {f"{i}.bmp": str(i % 2) for i in range(10)}
    left_out, (wide,), _ = look.look_at(tmp_path, images)
    assert not left_out and wide.startswith("10 of 10 images")
    monkeypatch.setattr(look, "MOST", 4)
    left_out, (wide, unopened), sides = look.look_at(tmp_path, images)
    assert (
        not left_out
        and sides[0] == (64, 90)
        and wide.startswith("4 of 4 images")
        and unopened.startswith("6 images not opened")
    )
    assert look.look_at(tmp_path, {}) == ({}, [], [])


def paint(folder: Path, *sizes: tuple[int, int]) -> Path:
    for number, size in enumerate(sizes):
        (folder / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (number, 0, 0)).save(folder / f"{number % 2}/{number}.png")
    return folder


def test_sizes_of__the_median_of_the_task_with_the_largest_images(tmp_path):
    small = paint(tmp_path / "small", *[(20, 24)] * 9)
    large = paint(tmp_path / "large", (90, 60), (30, 60), (400, 50), (10, 12))
    (large / "0/broken.png").write_bytes(b"no image")
    tasks = [folders.examine(str(path)) for path in (small, large)]
    # Of the strip the middle is seen, up to three squares of its side.
    assert look.sizes_of(map(folders.look, tasks)) == look.Sizes(40, pytest.approx((9 + 1.5 + 2 + 3 + 1) / 13))
    assert look.sizes_of([folders.look(folders.Folder("remote", "s3://bucket", {"": 9}))]) == look.Sizes(None, 1)


def test_sizes_of__zips_tars_and_parquet_files(tmp_path):
    raw, packed = paint(tmp_path / "raw", *[(20, 30)] * 4), tmp_path / "raw.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in raw.rglob("*.png"):
            archive.write(file, file.relative_to(raw))
    streams.tar(tmp_path / "train.tar", *streams.samples(0, 4))
    streams.parquet(tmp_path / "bags.parquet", [streams.png(i) for i in range(4)])
    assert look.sizes_of([folders.look(folders.examine(str(packed)))]) == look.Sizes(20, 1.5)
    for name in ("train.tar", "bags.parquet"):
        assert (
            look.sizes_of([folders.look(folders.examine(str(tmp_path / name)))]).shorter
            == Image.open(BytesIO(streams.png(0))).height
        )
