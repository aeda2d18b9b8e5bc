from pathlib import Path

import pytest

from polygrain.new.folders import examine
from polygrain.sources.streams import stream
from tests.helpers import streams


def sample_parquet(root: Path, contents: dict[str, bytes]) -> str:
    labels = [path.split("/")[0] for path in contents]
    return str(streams.parquet(root / "shoes.parquet", list(contents.values()), labels))


def test_find__a_folder_whose_parquet_files_lie_deeper(tmp_path):
    streams.parquet(tmp_path / "set/data/0.parquet", [streams.png(0)])
    with pytest.raises(ValueError, match=r"give the folder .*/set/data$"):
        examine(str(tmp_path / "set"))


def test_find__folders_of_hive_are_the_label(tmp_path):
    for name in ("boots", "high%20heels"):
        streams.parquet(tmp_path / f"set/split=a/label={name}/0.parquet", [streams.png(0)])
    found, several = examine(str(tmp_path / "set")), tmp_path / "several"
    assert found.classes == {"boots": 1, "high heels": 1} and "label=boots" in found.labels
    entries = stream.find(found.path, found.source, found.files).entries()
    assert [entry.class_name for entry in entries] == ["boots", "high heels"]
    streams.parquet(tmp_path / "shops/shop=x/0.parquet", [streams.png(0)])
    assert "(shop)" in examine(str(tmp_path / "shops")).labels
    for name in "ab":
        streams.parquet(several / name / "0.parquet", [streams.png(0)])
    with pytest.raises(ValueError, match=r"give each of the folders, as a task, .*/several/a, .*/several/b$"):
        examine(str(several))
