import csv

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from polygrain.store.tables import read_csv, read_parquet, write_csv

ODD = ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", "", " a ", "\u202eb", "\x1b[2J", "\U0001f600", "=1+1", "a\u2028b", "é"]


def test_write_csv__odd_names_come_back_as_they_were(tmp_path):
    write_csv(tmp_path / "a.csv", [("path", "reason"), *((name, name) for name in ODD)])
    assert read_csv(tmp_path / "a.csv") == [{"path": name, "reason": name} for name in ODD]
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as lines:
        assert list(csv.reader(lines))[1:] == [[name, name] for name in ODD]


@pytest.mark.parametrize("read", [read_csv, read_parquet])
@pytest.mark.parametrize("content", [None, b'"a","b\n', b"\xff\xfe\x00"])
def test_read__names_a_missing_or_damaged_file(tmp_path, read, content):
    file = tmp_path / "run" / "table"
    file.parent.mkdir()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"table is missing or damaged .*; delete .*run and run the pipeline again"):
        read(file)


def test_read_parquet__whole_or_in_columns(tmp_path):
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_parquet(tmp_path / "t.parquet").equals(table)
    assert read_parquet(tmp_path / "t.parquet", ["b"]).to_pydict() == {"b": ["x", "y"]}
