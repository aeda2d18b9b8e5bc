"""Anyone's vectors, smoothed: files in and out, and what is said of those that do not fit."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.app.vectors import smooth_file
from polygrain.compute.vectors import unit_rows
from polygrain.retrieval import smooth
from tests.polygrain.retrieval.test_smoothing_choice import clusters

ROWS = clusters() * np.linspace(1, 30, 180, dtype=np.float32)[:, None]  # of any length, as CLIP gives them


def table(rows=ROWS, **columns):
    return pa.table({"path": [f"{i}.jpg" for i in range(len(rows))], "clip": list(map(list, rows)), **columns})


def test_smooth_file__an_array_becomes_what_the_function_gives(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    count, how = smooth_file(tmp_path / "v.npy", tmp_path / "s.npy", alike=30)
    result = np.load(tmp_path / "s.npy", allow_pickle=False)
    assert count == 180 and how.strength > 0 and how.mixed == 0
    np.testing.assert_array_equal(result, smooth(ROWS, alike=30))
    assert np.abs(result - unit_rows(ROWS)).max() > 0.05


def test_smooth_file__a_table_keeps_its_columns(tmp_path):
    pq.write_table(table(price=pa.array(range(180)), smoothed=["old"] * 180), tmp_path / "v.parquet")
    _, how = smooth_file(tmp_path / "v.parquet", tmp_path / "s.parquet", alike=30)
    result = pq.read_table(tmp_path / "s.parquet")
    assert result.column_names == ["path", "clip", "price", "smoothed"] and result["price"].to_pylist() == [*range(180)]
    np.testing.assert_array_equal(np.stack(result["smoothed"].to_numpy()), smooth(ROWS, alike=30))
    assert json.loads(result.schema.metadata[b"smoothing"])["neighbours"] == how.neighbours


def test_smooth_file__an_array_with_its_paths_becomes_a_table(tmp_path):
    np.save(tmp_path / "v.npy", ROWS.astype(np.float16))
    (tmp_path / "p.txt").write_text("".join(f"a {i}.jpg\n" for i in range(180)))
    smooth_file(tmp_path / "v.npy", tmp_path / "s.parquet", paths=tmp_path / "p.txt")
    result = pq.read_table(tmp_path / "s.parquet")
    assert result.column_names == ["path", "embedding", "smoothed"] and result["path"][3].as_py() == "a 3.jpg"
    np.testing.assert_allclose(np.stack(result["embedding"].to_numpy()), unit_rows(ROWS), atol=1e-3)


def test_smooth_file__few_vectors_stay_as_they_are(tmp_path):
    pq.write_table(table(ROWS[:3]), tmp_path / "v.parquet")
    _, how = smooth_file(tmp_path / "v.parquet", tmp_path / "s.parquet")
    assert how.strength == 0 and pq.read_table(tmp_path / "s.parquet").column_names == ["path", "clip"]


def test_smooth_file__paths_are_the_lines_that_an_editor_shows(tmp_path):
    names = ["first.jpg", "a\u2028b.jpg", *(f"{i}\x0b.jpg" for i in range(178))]
    np.save(tmp_path / "v.npy", ROWS)
    (tmp_path / "p.txt").write_text("\n".join(names) + "\n", encoding="utf-8-sig")
    smooth_file(tmp_path / "v.npy", tmp_path / "s.parquet", paths=tmp_path / "p.txt")
    assert pq.read_table(tmp_path / "s.parquet")["path"].to_pylist() == names


@pytest.mark.parametrize("kind", [">f4", ">f2", "<u2", "g"])
def test_smooth_file__numbers_of_any_kind_and_order_of_bytes(tmp_path, kind):
    rows = np.round(100 * unit_rows(ROWS)) + 100  # whole numbers, in every kind the same
    np.save(tmp_path / "v.npy", np.asfortranarray(rows.astype(kind)))
    smooth_file(tmp_path / "v.npy", tmp_path / "s.npy", alike=30)
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy", allow_pickle=False), smooth(rows, alike=30))


def changed(row, value):
    rows = ROWS.copy()
    rows[row] = value
    return rows


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (changed(7, np.nan), "nan in row 7"),
        (changed(7, 0), "zeros alone in row 7"),
        (ROWS[:0], r"\(0, 24\)"),
        (ROWS[0], r"\(24,\)"),
        (np.array(["a"]), "<U1"),
        (ROWS.astype(object), "allow_pickle"),
        (ROWS[:5], r"5 rows, .*p.txt 6 lines"),
    ],
)
def test_smooth_file__says_what_is_wrong_with_an_array(tmp_path, array, message):
    np.save(tmp_path / "v.npy", array, allow_pickle=True)
    (tmp_path / "p.txt").write_text("a\n" * 6)
    (tmp_path / "s.npy").write_text("as before")
    with pytest.raises(ValueError, match=message):
        smooth_file(tmp_path / "v.npy", tmp_path / "s.npy", paths=tmp_path / "p.txt")
    assert (tmp_path / "s.npy").read_text() == "as before" and len([*tmp_path.iterdir()]) == 3


@pytest.mark.parametrize(
    ("given", "column", "message"),
    [
        (table(changed(7, 0)), None, "zeros alone in row 7"),
        (table(dino=[[1.0]] * 180), None, "name one of clip, dino"),
        (table(), "dino", "no column 'dino'"),
        (table(clip2=[[1.0]] * 180), None, "more than one column of vectors"),
        (table(text=["[1.0, 2.0]"] * 180), "text", "no column 'text' of vectors; .*text: string: name one of clip"),
        (pa.table({"path": ["a"], "clip": ["[1]"]}), None, "no column of .*path: string, clip: string: make .*json"),
        (pa.table([["a"], [[1.0]], [[2.0]]], ["path", "clip", "clip"]), None, "than one column 'clip'.*clip: list<"),
        (pa.table({"clip": [[1.0], None]}), None, "2 rows, 1 without"),
        (pa.table({"clip": [[1.0], [1.0, 2.0]]}), None, "of 1 and of 2 numbers"),
        (pa.table({"clip": pa.array([], pa.list_(pa.float32()))}), None, "0 rows"),
        (pa.table({"clip": [[1.0, None]]}), None, "nan in row 0"),
    ],
)
def test_smooth_file__says_what_is_wrong_with_a_table(tmp_path, given, column, message):
    pq.write_table(given, tmp_path / "v.parquet")
    with pytest.raises(ValueError, match=message):
        smooth_file(tmp_path / "v.parquet", tmp_path / "s.npy", column=column)
    assert [path.name for path in tmp_path.iterdir()] == ["v.parquet"]


def test_smooth_file__never_over_what_it_reads(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    with pytest.raises(ValueError, match="would lose"):
        smooth_file(tmp_path / "v.npy", tmp_path / "v.npy")
    assert np.array_equal(np.load(tmp_path / "v.npy", allow_pickle=False), ROWS)
