import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.sources.streams import parquet
from polygrain.store.rectangle import Unreadable
from tests.helpers import streams


def read(file, skip=0):
    with file.open("rb") as stream:
        return list(parquet.read(stream, file.name, 4, skip))


@pytest.mark.parametrize("group", [1, 3, 100])
def test_read__every_row_from_any_on(tmp_path, group):
    file = streams.parquet(
        tmp_path / "a.parquet", [b"%d" % i for i in range(10)], list(range(10)), row_group_size=group
    )
    entries = read(file)
    assert [tuple(entry) for entry in entries] == [(4, i, f"a.parquet/{i:09d}", str(i), b"%d" % i) for i in range(10)]
    assert all(read(file, skip) == entries[skip:] for skip in range(11))
    with file.open("rb") as stream:
        assert parquet.count(stream, "a") == 10


def test_read__the_names_of_classes_and_labels_beyond_them(tmp_path):
    file = streams.parquet(tmp_path / "a.parquet", [b"x"] * 4, [1, 0, 2, -1], ["cat", "dog"])
    entries = read(file)
    assert [entry.class_name for entry in entries] == ["dog", "cat", "", ""]
    assert str(entries[2].content) == "its label is 2, of 2 classes" and isinstance(entries[3].content, Unreadable)


def test_read__rows_without_bytes_and_plain_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MOST_BYTES", 10)
    entries = read(streams.parquet(tmp_path / "a.parquet", [b"x", None, b"", bytes(11)]))
    assert entries[0].content == b"x"
    reasons = ["it holds a path", "it holds a path", "it has 11 bytes"]
    assert [str(entry.content)[:15] for entry in entries[1:]] == reasons
    pq.write_table(pa.table({"jpg": [b"y"], "text": ["t"]}), tmp_path / "b.parquet")
    assert [(entry.class_name, entry.content) for entry in read(tmp_path / "b.parquet")] == [("", b"y")]


KINDS = {
    "categories of pandas": pa.array(["boots", "heels", "boots"]).dictionary_encode(),
    "numbers with gaps": pa.array([3.0, None, float("nan")]),
    "views": pa.array(["boots", "heels", "boots"], pa.string_view()),
    "flags": pa.array([True, False, True]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels__of_any_kind_of_column_are_those_of_its_rows(tmp_path, kind):
    column = KINDS[kind]
    pq.write_table(pa.table({"image": [b"a", b"b", b"c"], "label": column}), tmp_path / "a.parquet")
    expected = ["3", "", ""] if kind == "numbers with gaps" else [str(value) for value in column.to_pylist()]
    assert [entry.class_name for entry in read(tmp_path / "a.parquet")] == expected
    with (tmp_path / "a.parquet").open("rb") as stream:
        assert list(parquet.labels(stream, "a")) == expected
        assert parquet.described(stream, "a") == "label: column label"


def test_described__names_the_columns_where_none_is_a_label(tmp_path):
    pq.write_table(pa.table({"image": [b"a"], "kind": ["boots"]}), tmp_path / "a.parquet")
    with (tmp_path / "a.parquet").open("rb") as stream:
        assert "kind" in parquet.described(stream, "a") and list(parquet.labels(stream, "a")) == [""]


def test_columns__two_of_one_name_are_no_guess():
    with pytest.raises(ValueError, match=r"more than one column 'label'; .*label: string, label: int64"):
        parquet.columns(pa.table([[b"x"], ["a"], [1]], ["image", "label", "label"]).schema, "a.parquet")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["t"]}, r"a\.parquet has 0 columns with images; its columns are text: string: one"),
        ({"left": [b"t"], "right": [b"t"]}, r"2 columns with images; .*of several one must be named image"),
    ],
)
def test_read__raise_on_other_columns(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "change", [lambda c: c[: len(c) // 2], lambda c: c[:4] + b"\xff" * (len(c) // 2) + c[4 + len(c) // 2 :]]
)
def test_read__raise_on_a_damaged_file(tmp_path, change):
    file = streams.parquet(tmp_path / "a.parquet", [bytes([i]) * 1000 for i in range(50)], compression="snappy")
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ValueError, match=r"(?s)a\.parquet is damaged or cut off .*; make or download it again"):
        read(file)
