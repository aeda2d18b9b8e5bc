import os
from pathlib import Path

import numpy as np
from PIL import Image

from polygrain.sources import look


def test_look_at__some_of_many_and_large_files_are_not_read_whole(tmp_path: Path, monkeypatch) -> None:
    for i in range(10):
        pixels = np.full((64, 90 + i % 2, 3), i, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.bmp")
        os.truncate(tmp_path / f"{i}.bmp", 10**9)  # sparse, all of one size
    images = {f"{i}.bmp": str(i % 2) for i in range(10)}
    left_out, (wide,) = look.look_at(tmp_path, images)
    assert not left_out and wide.startswith("10 of 10 images")
    monkeypatch.setattr(look, "MOST", 4)
    left_out, (wide, unopened) = look.look_at(tmp_path, images)
    assert not left_out and wide.startswith("4 of 4 images") and unopened.startswith("6 images were not opened")
    assert look.look_at(tmp_path, {}) == ({}, [])
