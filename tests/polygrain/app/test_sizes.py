import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from polygrain.app.sizes import Sizes, sizes_of
from polygrain.config.folders import Folder, examine
from tests.helpers import streams


def paint(folder: Path, *sizes: tuple[int, int]) -> Path:
    for number, size in enumerate(sizes):
        (folder / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size).save(folder / f"{number % 2}/{number}.png")
    return folder


def test_sizes_of__the_median_of_the_task_with_the_largest_images(tmp_path):
    small = paint(tmp_path / "small", *[(20, 24)] * 9)
    large = paint(tmp_path / "large", (90, 60), (30, 60), (400, 50), (10, 12))
    (large / "0/broken.png").write_bytes(b"no image")
    tasks = [examine(str(path)) for path in (small, large)]
    # Of the strip the middle is seen, up to three squares of its side.
    assert sizes_of(tasks) == Sizes(40, pytest.approx((9 + 1.5 + 2 + 3 + 1) / 13))
    assert sizes_of([Folder("remote", "s3://bucket", {"": 9})]) == Sizes(None, 1)


def test_sizes_of__zips_tars_and_parquet_files(tmp_path):
    raw, packed = paint(tmp_path / "raw", *[(20, 30)] * 4), tmp_path / "raw.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in raw.rglob("*.png"):
            archive.write(file, file.relative_to(raw))
    streams.tar(tmp_path / "train.tar", *streams.samples(0, 4))
    streams.parquet(tmp_path / "bags.parquet", [streams.png(i) for i in range(4)])
    assert sizes_of([examine(str(packed))]) == Sizes(20, 1.5)
    for name in ("train.tar", "bags.parquet"):
        assert sizes_of([examine(str(tmp_path / name))]).shorter == Image.open(BytesIO(streams.png(0))).height
