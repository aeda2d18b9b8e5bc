from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polygrain.store.embeddings import metadata, read, write

from polygrain.collection import file as embeddings
from polygrain.compute.vectors import unit_rows

FACTS = {"model": "abc", "dim": "8", "root": "/photos", "images": "-", "comparison": "{}"}


def columns(count: int = 30, **changes: object) -> dict:
    rows = unit_rows(np.random.default_rng(0).normal(size=(2, count, 8)).astype(np.float32))
    values = {
        "path": [f"a/{row}.png" for row in range(count)],
        "embedding": unit_rows(rows[0]),
        "state": ["1 2"] * count,
    }
    return values | {"smoothed": unit_rows(rows[1])} | changes


def test_write__gives_back_what_was_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "GROUP", 7)
    file, values = tmp_path / "e.parquet", columns()
    write(file, values, FACTS)
    plain, smoothed = read(file), read(file, smoothed=True)
    assert plain[:3] == (Path("/photos"), "abc", values["path"])
    np.testing.assert_array_equal(plain.vectors, values["embedding"])
    np.testing.assert_array_equal(smoothed.vectors, values["smoothed"])
    assert smoothed.comparison == plain.comparison == b"{}" and metadata(file)["dim"] == b"8"
    assert pq.ParquetFile(file).num_row_groups == 5
    assert embeddings.has_smoothed(file) and [path.name for path in tmp_path.iterdir()] == ["e.parquet"]


def test_read__a_relative_root_starts_at_the_file(tmp_path: Path) -> None:
    write(tmp_path / "e.parquet", columns(), FACTS | {"root": "../photos"})
    assert read(tmp_path / "e.parquet").root == tmp_path / "../photos"


def test_read__plain_columns_alone(tmp_path: Path) -> None:
    values = columns()
    write(tmp_path / "e.parquet", {name: values[name] for name in ("path", "embedding")}, FACTS)
    assert not embeddings.has_smoothed(tmp_path / "e.parquet")
    np.testing.assert_array_equal(read(tmp_path / "e.parquet", smoothed=True).vectors, values["embedding"])


def test_read__an_image_of_which_nothing_is_left(tmp_path: Path) -> None:
    values = columns()
    values["embedding"][3] = 0
    write(tmp_path / "e.parquet", values, FACTS)
    assert not read(tmp_path / "e.parquet").vectors[3].any()


@pytest.mark.parametrize(
    ("changes", "facts", "message"),
    [
        ({}, {"model": None}, "lack model"),
        ({}, {"comparison": None, "axes": "4"}, "lack comparison, .*earlier version"),
        ({}, {"dim": "9"}, "30 rows"),
        ({"embedding": np.full((30, 8), np.nan, np.float32)}, {}, "unit length"),
        ({"path": ["c/../../b.png"] * 30}, {}, "no path below"),
    ],
)
def test_read__refuses_a_file_that_is_missing_damaged_or_of_another_kind(
    tmp_path: Path, changes: dict, facts: dict, message: str
) -> None:
    file = tmp_path / "e.parquet"
    with pytest.raises(ValueError, match="is missing or damaged"):
        read(file)
    write(file, columns(**changes), {name: value for name, value in (FACTS | facts).items() if value})
    with pytest.raises(ValueError, match=f"e.parquet is missing or damaged .*{message}"):
        read(file)


def test_read__refuses_columns_of_another_table(tmp_path: Path) -> None:
    table = pa.table({"path": ["a.png"], "other": [1]}).replace_schema_metadata(FACTS)
    pq.write_table(table, tmp_path / "e.parquet")
    with pytest.raises(ValueError, match="1 rows of path: string, other"):
        read(tmp_path / "e.parquet")
    assert metadata(tmp_path / "none.parquet") == {}
