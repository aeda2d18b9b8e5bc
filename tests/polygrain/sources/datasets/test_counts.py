from pathlib import Path

import pytest

from polygrain.sources.datasets import addresses, counts, load
from tests.helpers import layouts


def test_counts__are_table_1(tmp_path: Path) -> None:
    six = [counts.counts(name) for name in ("aircraft", "cars", "cub", "flowers", "food101", "products")]
    assert sum(row["published_train_images"] for row in six) == 133_339
    assert sum(row["published_test_images"] for row in six) == 133_876
    assert sum(row["train_classes"] for row in six) == 11_668 and sum(row["test_classes"] for row in six) == 11_665
    differ = {key for row in six for key in ("train_images", "test_images") if row[key] != row["published_" + key]}
    assert differ == {"train_images", "test_images"}
    assert sum(row["train_images"] for row in six) - 133_339 == 3_919 - 3_870  # Flowers, and nothing else
    assert sum(row["test_images"] for row in six) - 133_876 == 4_270 - 4_319
    assert set(addresses.SOURCES) == {line.split(",")[0] for line in counts.COUNTS.read_text().split("\n")[1:-1]}


def test_check_counts__pass_where_all_agree(tmp_path: Path, monkeypatch) -> None:
    layouts.cub(tmp_path, 3)
    file = tmp_path / "counts.csv"
    header = counts.COUNTS.read_text().split("\n")[0]
    monkeypatch.setattr(counts, "COUNTS", file)
    file.write_text(f"{header}\ncub,2,6,2,6,6,6,here\n")
    counts.check_counts(load.load("cub", tmp_path))
    file.write_text(f"{header}\ncub,2,6,2,7,6,7,here\n")
    with pytest.raises(ValueError, match=r"cub has 6 test images \(7 in its label files\): complete it"):
        counts.check_counts(load.load("cub", tmp_path))
