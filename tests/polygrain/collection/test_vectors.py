"""Anyone's vectors, smoothed: files in and out, and what is said of those that do not fit."""

from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.collection.collection import Collection
from polygrain.collection.postprocessing.diffusion import linked
from polygrain.collection.postprocessing.strength import choose
from polygrain.collection.vectors import read, smooth_file
from polygrain.compute.vectors import unit_rows
from polygrain.fisher import ClusterWhitening, load


def clusters(classes=6, per_class=30, dim=24):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, dim)) / dim**0.5
    rows = np.repeat(centres, per_class, 0) + 0.25 * rng.normal(size=(classes * per_class, dim))
    return unit_rows(rows.astype(np.float32))


ROWS = clusters() * np.linspace(1, 30, 180, dtype=np.float32)[:, None]  # of any length, as CLIP gives them


def table(rows=ROWS, **columns):
    return pa.table({"path": [f"{i}.jpg" for i in range(len(rows))], "clip": list(map(list, rows)), **columns})


def expected(rows, alike=None):
    """Behind their own layer; and smoothed by links of the rows as they were."""
    plain = ClusterWhitening(alike).fit_transform(unit_rows(rows.astype(np.float32)))
    units = unit_rows(rows.astype(np.float32))
    return plain, linked(units, plain, choose(units, alike=alike).smoothing)


def test_smooth_file__an_array_becomes_its_smoothed_rows_and_a_query_goes_through_the_layer(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    assert len(smooth_file(tmp_path / "v.npy", tmp_path / "s.npy", alike=30)) == 180
    plain, smoothed = expected(ROWS, 30)
    np.testing.assert_allclose(np.load(tmp_path / "s.npy", allow_pickle=False), smoothed, atol=1e-6)
    query = load(tmp_path / "s.npy.layer.npz").transform(ROWS[:7] * 3)
    np.testing.assert_allclose(query, plain[:7], atol=1e-5)


def test_smooth_file__each_output_has_a_layer_of_its_own(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    np.save(tmp_path / "w.npy", ROWS[::2, ::-1])
    smooth_file(tmp_path / "v.npy", tmp_path / "s.npy", alike=30)
    smooth_file(tmp_path / "w.npy", tmp_path / "s.parquet", alike=15)
    plain = load(tmp_path / "s.npy.layer.npz").transform(ROWS)
    np.testing.assert_allclose(plain, expected(ROWS, 30)[0], atol=1e-5)
    other = Collection.open(tmp_path / "s.parquet")
    np.testing.assert_allclose(other.query(ROWS[::2, ::-1]), other.plain, atol=1e-5)


def test_smooth_file__a_table_keeps_its_columns_and_is_a_collection(tmp_path):
    given = table(price=pa.array(range(180), pa.int16())).replace_schema_metadata({"mine": "kept"})
    pq.write_table(given, tmp_path / "v.parquet")
    smooth_file(tmp_path / "v.parquet", tmp_path / "first.parquet")
    smooth_file(tmp_path / "first.parquet", tmp_path / "s.parquet", alike=30, column="clip")
    result = pq.read_table(tmp_path / "s.parquet")
    assert result.column_names == ["path", "clip", "price", "searched", "plain"]
    assert result.select(given.column_names).equals(given) and result.schema.metadata[b"mine"] == b"kept"
    for name, rows in zip(("plain", "searched"), expected(ROWS, 30), strict=True):
        np.testing.assert_allclose(np.stack(result[name].to_numpy()), rows, atol=1e-6)
    found = Collection.open(tmp_path / "s.parquet")
    assert found.comparison.smoothing.strength and found.search(ROWS[3:4], 1)[0][0].path in found.paths[:30]


@pytest.mark.parametrize(("path", "expected"), [(range(6), "012345"), (None, "012345"), ([*"abcde", None], 0)])
def test_smooth_file__a_table_without_names_of_text_gets_them(tmp_path, path, expected):
    given = table(ROWS[:6]).drop_columns("path")
    pq.write_table(given.append_column("path", [path]) if path else given, tmp_path / "v.parquet")
    smooth_file(tmp_path / "v.parquet", tmp_path / "s.parquet")
    assert Collection.open(tmp_path / "s.parquet").paths == list(expected or ["a", "b", "c", "d", "e", "None"])


TENSOR = pa.fixed_shape_tensor(pa.float32(), [4, 6])


@pytest.mark.parametrize("kind", [TENSOR, pa.list_view(pa.float32()), pa.large_list(pa.float32())])
def test_smooth_file__any_of_arrows_kinds_of_lists(tmp_path, kind):
    column = pa.array([*map(list, ROWS[:6])], getattr(kind, "storage_type", kind))
    column = pa.ExtensionArray.from_storage(kind, column) if kind is TENSOR else column
    pq.write_table(pa.table({"clip": pa.chunked_array([column[:4], column[4:]])}), tmp_path / "v.parquet")
    smooth_file(tmp_path / "v.parquet", tmp_path / "s.parquet")
    result = pq.read_table(tmp_path / "s.parquet")
    assert result.schema.field("clip").type == kind
    np.testing.assert_allclose(np.stack(result["searched"].to_numpy()), unit_rows(ROWS[:6]), atol=1e-6)


def test_smooth_file__several_rows_of_one_image_keep_their_names(tmp_path):
    given = table().drop_columns("path").add_column(0, "path", pa.array([f"{row // 2}.jpg" for row in range(180)]))
    pq.write_table(given, tmp_path / "v.parquet")
    smooth_file(tmp_path / "v.parquet", tmp_path / "s.parquet", column="clip")
    assert Collection.open(tmp_path / "s.parquet").paths == given["path"].to_pylist()


@pytest.mark.parametrize(("name", "facts"), [("plain", {}), ("searched", {}), ("plain", {"smoothing": "{}"})])
def test_smooth_file__never_replaces_a_column_of_the_users_own(tmp_path, name, facts):
    given = table(**{name: ["mine"] * 180}).replace_schema_metadata(facts)
    pq.write_table(given, tmp_path / "v.parquet")
    with pytest.raises(ValueError, match=f"column '{name}' of its own.*rename"):
        smooth_file(tmp_path / "v.parquet", tmp_path / "s.parquet", column="clip")
    assert [path.name for path in tmp_path.iterdir()] == ["v.parquet"]
    assert len(read(tmp_path / "v.parquet", "clip").rows) == 180  # an array has no columns to lose


@pytest.mark.parametrize("name", ["v.npz", "v.npy", "v.parquet", "v"])
def test_read__first_bytes_tell_the_kind(tmp_path, name):
    for write in (np.save, np.savez, lambda stream, _: pq.write_table(table(), stream)):
        with (tmp_path / name).open("wb") as stream:
            write(stream, ROWS)
        np.testing.assert_allclose(read(tmp_path / name).rows, unit_rows(ROWS), atol=1e-6)


def test_read__one_of_several_arrays_by_its_name(tmp_path):
    np.savez_compressed(tmp_path / "v.npz", clip=ROWS, paths=np.array(["a"], object))
    for column, message in ((None, "clip, paths: name"), ("dino", "clip, paths"), ("paths", "allow_pickle")):
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "v.npz", column)
    assert len(read(tmp_path / "v.npz", "clip").rows) == 180
    for bytes_, message in (((tmp_path / "v.npz").read_bytes()[:-9], "damaged"), (b"PK\5\6" + bytes(18), "no array")):
        (tmp_path / "v.npz").write_bytes(bytes_)
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "v.npz")


@pytest.mark.parametrize("kind", ["uint8", "int8", "int64"])
def test_read__packed_bits_are_told_and_unpacked_as_said(tmp_path, kind, caplog):
    packed = np.packbits(ROWS > 0, axis=1)
    for rows, is_told in ((packed, True), (np.unpackbits(packed, axis=1), False)):
        caplog.clear()
        np.save(tmp_path / "v.npy", rows.astype(kind))
        read(tmp_path / "v.npy")
        assert ("np.unpackbits" in caplog.text) == is_told


def test_smooth_file__an_array_with_its_paths_becomes_a_table(tmp_path):
    np.save(tmp_path / "v.npy", ROWS.astype(np.float16))
    names = ["first.jpg", "a\u2028b.jpg", *(f"{i}\x0b.jpg" for i in range(178))]  # lines are those that an editor shows
    (tmp_path / "p.txt").write_text("\n".join(names) + "\n", encoding="utf-8-sig")
    smooth_file(tmp_path / "v.npy", tmp_path / "s.parquet", paths=tmp_path / "p.txt")
    result = pq.read_table(tmp_path / "s.parquet")
    assert result.column_names == ["path", "embedding", "searched", "plain"]
    assert result["path"].to_pylist() == names
    np.testing.assert_allclose(np.stack(result["embedding"].to_numpy()), unit_rows(ROWS), atol=1e-3)


def test_smooth_file__few_vectors_stay_as_they_are(tmp_path):
    pq.write_table(table(ROWS[:3]), tmp_path / "v.parquet")
    smooth_file(tmp_path / "v.parquet", tmp_path / "s.parquet")
    result = pq.read_table(tmp_path / "s.parquet")
    assert result.column_names == ["path", "clip", "searched"]
    np.testing.assert_allclose(np.stack(result["searched"].to_numpy()), unit_rows(ROWS[:3]), atol=1e-6)
    np.testing.assert_allclose(Collection.open(tmp_path / "s.parquet").query(ROWS), unit_rows(ROWS), atol=1e-6)


@pytest.mark.parametrize("kind", [">f2", "<u2", "g"])
def test_read__numbers_of_any_kind_and_order_of_bytes(tmp_path, kind):
    rows = np.round(100 * unit_rows(ROWS)) + 100  # whole numbers, in every kind the same
    np.save(tmp_path / "v.npy", np.asfortranarray(rows.astype(kind)))
    np.testing.assert_allclose(read(tmp_path / "v.npy").rows, unit_rows(rows), atol=1e-6)


def changed(row, value):
    rows = ROWS.copy()
    rows[row] = value
    return rows


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (changed(7, np.nan), "nan in row 7"),
        (changed(7, 0), "row 7 of .* zeros"),
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
        (table(changed(7, 0)), None, "row 7 of .* zeros"),
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


@pytest.mark.parametrize("name", ["s.npy", "s.parquet"])
def test_smooth_file__what_fails_at_the_end_leaves_output_and_layer_as_they_were(tmp_path, monkeypatch, name):
    np.save(tmp_path / "v.npy", ROWS)
    smooth_file(tmp_path / "v.npy", tmp_path / name)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for writes in ("polygrain.collection.file.File.write", "numpy.save", "numpy.savez"):
        monkeypatch.setattr(writes, Mock(side_effect=OSError("full")))
    with pytest.raises(OSError, match="full"):
        smooth_file(tmp_path / "v.npy", tmp_path / name, alike=30)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
