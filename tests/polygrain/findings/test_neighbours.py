import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.findings import neighbours
from polygrain.findings.neighbours import Neighbours
from polygrain.store import arrays
from tests.helpers.report_world import write_choice

SAME = Neighbours(0, [1, 2], [2, 1])
HALF = Neighbours(3, [1, 2], [1, 4])
NONE = [Neighbours(row, [1, 2], [3, 4]) for row in (9, 5)]


def test_read__the_first_five_of_each_image(tmp_path):
    write_choice(tmp_path, ["one"])
    samples = neighbours.read(tmp_path)["one"]
    assert samples[1] == Neighbours(1, [0, 2, 3, 4, 5], [2, 3, 4, 5, 6]) and samples[1].shared == 4
    write_choice(tmp_path, [])
    assert neighbours.read(tmp_path) == {}


def test_read__an_image_without_a_neighbour_is_left_out(tmp_path):
    lists = pa.array([[2], []], pa.list_(pa.int64()))
    rows = {"task": ["a"] * 2, "row": [0, 1], "encoder": lists, "recommended": lists}
    pq.write_table(pa.table(rows), tmp_path / "neighbours.parquet")
    assert neighbours.read(tmp_path) == {"a": [Neighbours(0, [2], [2])]}


def test_read__a_damaged_file_is_named(tmp_path):
    (tmp_path / "neighbours.parquet").write_text("")
    with pytest.raises(ValueError, match=r"neighbours\.parquet is missing or damaged"):
        neighbours.read(tmp_path)


def test_most_changed__fewest_in_common_first_and_none_that_only_moved():
    assert neighbours.most_changed([SAME, HALF, *NONE], 10) == [NONE[1], NONE[0], HALF]
    assert neighbours.most_changed([SAME, HALF, *NONE], 1) == [NONE[1]]


def test_show__has_the_pictures_of_the_rows(tmp_path):
    tones = np.arange(10, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    arrays.write(tmp_path / "a" / "pixels.zarr", tones)
    paths = [f"{i}.jpg" for i in range(10)]
    (entry,) = neighbours.show(tmp_path / "a", paths, [HALF], ("Before", "After"), 16)
    assert (entry["path"], entry["shared"], entry["of"]) == ("3.jpg", 1, 2)
    marks = [[item["is_shared"] for item in side["results"]] for side in entry["lists"]]
    assert marks == [[True, False], [True, False]] and [side["title"] for side in entry["lists"]] == ["Before", "After"]
