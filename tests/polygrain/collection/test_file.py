from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.collection import file as files
from polygrain.collection.file import Facts, File, earlier, write
from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.collection.postprocessing.diffusion import Smoothing
from polygrain.compute.vectors import unit_rows

SMOOTHED = Comparison(tuple(np.full(8, 0.1, np.float32).tolist()), Smoothing(0.9, 3), alike=4)
FACTS = Facts("abc", 8, SMOOTHED, Path("/photos"), "-", Path("/model"), Path("/photos/a.csv"), "shoes", 6, 30)


def columns(count: int = 30, **changes: object) -> dict:
    rows = unit_rows(np.random.default_rng(0).normal(size=(2 * count, 8)).astype(np.float32))
    paths = [f"a/{row}.png" for row in range(count)]
    return {"path": paths, "searched": rows[:count], "plain": rows[count:], "state": ["1 2"] * count} | changes


def test_write__gives_back_what_was_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP", 7)
    place, values = tmp_path / "e.parquet", columns()
    write(place, values, FACTS)
    file = File(place)
    assert file.facts == FACTS and file.is_smoothed and file.comparison == SMOOTHED
    assert file.paths() == values["path"] and file.text("state") == values["state"] and file.text("sha256") == [""] * 30
    for name in ("searched", "plain"):
        np.testing.assert_array_equal(file.rows(name), values[name])
    assert pq.ParquetFile(place).num_row_groups == 5 and [path.name for path in tmp_path.iterdir()] == ["e.parquet"]


def test_file__relative_folders_start_at_it(tmp_path: Path) -> None:
    write(tmp_path / "e.parquet", columns(), Facts("abc", 8, SMOOTHED, root=Path("../photos"), folder=Path("choice")))
    facts = File(tmp_path / "e.parquet").facts
    assert (facts.root, facts.folder, facts.source) == (tmp_path.parent / "photos", tmp_path / "choice", None)


def test_file__rows_that_are_not_smoothed_are_searched_as_they_ask(tmp_path: Path) -> None:
    values = columns()
    values["searched"][3] = 0  # an image of which nothing is left
    del values["plain"]
    write(tmp_path / "e.parquet", values, FACTS)
    file = File(tmp_path / "e.parquet")
    assert not file.is_smoothed and file.comparison == SMOOTHED.unsmoothed()
    np.testing.assert_array_equal(file.rows("plain"), values["searched"])
    np.testing.assert_array_equal(file.rows("searched"), values["searched"])


@pytest.mark.parametrize("is_smoothed", [True, False])
def test_file__the_first_version_is_read_and_saved_as_this_one(tmp_path: Path, is_smoothed: bool) -> None:
    values = columns()
    named = {"path": values["path"], "embedding": values["plain"]} | (
        {"smoothed": values["searched"]} if is_smoothed else {}
    )
    kinds = pa.schema([(name, pa.string() if name == "path" else files.rows_of(8)) for name in named])
    table = pa.Table.from_arrays(
        [pa.array(of) if name == "path" else files.lists(of) for name, of in named.items()], schema=kinds
    )
    facts = {"model": "abc", "dim": "8", "root": "/photos", "images": "-", "comparison": SMOOTHED.to_json()}
    pq.write_table(table.replace_schema_metadata(facts), tmp_path / "old.parquet")
    old = File(tmp_path / "old.parquet")
    assert (old.facts.root, old.facts.alike, old.facts.count) == (Path("/photos"), 4, 30)
    old.write(tmp_path / "new.parquet", old.facts)
    for file in (old, File(tmp_path / "new.parquet")):
        assert file.facts == old.facts and file.is_smoothed == is_smoothed and file.paths() == values["path"]
        np.testing.assert_array_equal(file.rows("plain"), values["plain"])
        np.testing.assert_array_equal(file.rows("searched"), values["searched" if is_smoothed else "plain"])


def test_file__stays_as_it_was_opened(tmp_path: Path) -> None:
    place, values = tmp_path / "e.parquet", columns()
    write(place, values, FACTS)
    file = File(place)
    file.write(place, Facts("def", 8, SMOOTHED))
    assert File(place).facts == Facts("def", 8, SMOOTHED) and File(place).text("state") == values["state"]
    write(place, columns(5), FACTS)
    np.testing.assert_array_equal(file.rows("plain"), values["plain"])
    assert len(file.paths()) == 30


@pytest.mark.parametrize(
    ("changes", "facts", "message"),
    [
        ({}, {"dim": None}, "lack dim"),
        ({}, {"comparison": None, "axes": "4"}, "lack comparison, .*earlier version"),
        ({}, {"dim": "9"}, "30 rows of path: string, searched"),
        ({}, {"comparison": '{"mean": [0.1, 0.2]}'}, "mean has 2 numbers, a row 8"),
        ({}, {"comparison": '{"alike": 1}'}, "alike"),
        ({}, {"comparison": "no JSON"}, "JSON"),
        ({"searched": np.full((30, 8), np.nan, np.float32)}, {}, "unit length"),
        ({"path": ["c/../../b.png"] * 30}, {}, "no path below"),
    ],
)
def test_file__refuses_what_no_call_wrote(tmp_path: Path, changes: dict, facts: dict, message: str) -> None:
    place = tmp_path / "e.parquet"
    with pytest.raises(ValueError, match="is missing or damaged"):
        File(place)
    write(place, columns(**changes), FACTS)
    table = pq.read_table(place)
    values = {name.decode(): value.decode() for name, value in table.schema.metadata.items()} | facts
    pq.write_table(table.replace_schema_metadata({name: of for name, of in values.items() if of}), place)
    with pytest.raises(ValueError, match=rf"e.parquet is missing or damaged .*{message}.*polygrain embed"):
        [File(place).rows("searched"), File(place).paths()]


def test_earlier__none_where_there_is_no_collection(tmp_path: Path) -> None:
    assert earlier(tmp_path / "none.parquet") is None
    pq.write_table(pa.table({"path": ["a.png"], "other": [1]}), tmp_path / "e.parquet")
    assert earlier(tmp_path / "e.parquet") is None
    with pytest.raises(ValueError, match=r"e\.parquet is no collection: make it with"):
        File(tmp_path / "e.parquet")
