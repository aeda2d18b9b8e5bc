from pathlib import Path

import numpy as np
import pytest

from polygrain.collection.file import Facts, write
from polygrain.collection.postprocessing import Comparison
from polygrain.new.folders import examine
from tests.helpers import streams
from tests.polygrain.new.test_folders import paint


def sample_tars(root: Path, contents: dict[str, bytes]) -> str:
    for i in range(2):
        pairs = [*enumerate(contents.items())][i::2]
        images = [(f"{number:03d}.png", content) for number, (_, content) in pairs]
        labels = [(f"{number:03d}.cls", path.split("/")[0].encode()) for number, (path, _) in pairs]
        streams.tar(root / f"tars/{i}.tar", *[member for both in zip(images, labels, strict=True) for member in both])
    return str(root / "tars")


def test_find__tars_beside_something_else(tmp_path):
    raw = paint(tmp_path / "raw", "a/1.png", "a/2.png", "b/1.png")
    columns = {"path": ["a/1.png"], "searched": np.ones((1, 1), np.float32)}
    write(raw / "embeddings.parquet", columns, Facts("x", 1, Comparison(), raw))
    assert examine(str(raw)).classes == {"a": 2, "b": 1}
    streams.tar(raw / "backup.tar", *streams.samples(0, 4))
    with pytest.raises(ValueError, match=r"holds backup.tar beside images: give '.*/raw/\*.tar' to read"):
        examine(str(raw))
    downloaded = tmp_path / "downloaded"
    streams.tar(downloaded / "00000.tar", *streams.samples(0, 4))
    streams.parquet(downloaded / "00000.parquet", [streams.png(0)])
    assert examine(str(downloaded)).source == "tars"
    streams.parquet(downloaded / "more.parquet", [streams.png(0)])
    with pytest.raises(ValueError, match="beside tars"):
        examine(str(downloaded))
