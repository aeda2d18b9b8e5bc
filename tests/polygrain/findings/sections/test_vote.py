import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.findings.sections import vote
from polygrain.findings.sections.vote import Neighbours
from polygrain.store import arrays
from tests.helpers.report_world import write_choice

HALF = Neighbours(3, [1, 2], [1, 4])


def test_read__the_first_five_of_each_image(tmp_path):
    write_choice(tmp_path, ["one"])
    samples = vote.read(tmp_path)["one"]
    assert samples[1] == Neighbours(1, [0, 2, 3, 4, 5], [2, 3, 4, 5, 6])
    write_choice(tmp_path, [])
    assert vote.read(tmp_path) == {}


def test_read__an_image_without_a_neighbour_is_left_out(tmp_path):
    lists = pa.array([[2], []], pa.list_(pa.int64()))
    rows = {"task": ["a"] * 2, "row": [0, 1], "encoder": lists, "recommended": lists}
    pq.write_table(pa.table(rows), tmp_path / "neighbours.parquet")
    assert vote.read(tmp_path) == {"a": [Neighbours(0, [2], [2])]}


def test_drawn__at_random_from_all_that_differ_under_names_that_tell_nothing():
    """Every second image of the sample has the same pictures twice; of the others the lists share from 0 to 4."""
    other = [[5 - shared, *range(10, 10 + shared)] for shared in range(5)]
    lists = [([10, 11, 12, 13, 14], [14, 13, 12, 11, 10] if row % 2 else other[row % 5]) for row in range(100)]
    samples = [Neighbours(row, *both) for row, both in enumerate(lists)]
    asked = vote.drawn(samples, 10)
    found = [one.row for one, _ in asked]
    shared = [len({*one.encoder} & {*one.recommended}) for one, _ in asked]
    assert len(set(found)) == 10 and not any(row % 2 for row in found)
    assert found != sorted(found) and shared != sorted(shared) and shared[::-1] != sorted(shared)
    assert {is_first for _, is_first in asked} == {False, True}
    assert vote.drawn(samples, 10) == asked and vote.drawn(samples[:50], 10) != asked
    assert len(vote.drawn(samples, 99)) == 50 and vote.drawn(samples[1:2], 9) == vote.drawn([], 9) == []


def test_show__has_the_pictures_of_the_rows_in_the_drawn_order(tmp_path):
    tones = np.arange(10, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    arrays.write(tmp_path / "a" / "pixels.zarr", tones)
    paths = [f"{i}.jpg" for i in range(10)]
    entries = vote.show(tmp_path / "a", paths, [(HALF, False), (HALF, True)], 16)
    assert [entry["path"] for entry in entries] == ["3.jpg"] * 2
    (encoder, recommended), turned = (entry["lists"] for entry in entries)
    assert [encoder["side"], recommended["side"]] == ["encoder", "recommended"] and turned == [recommended, encoder]
    assert [[item["is_shared"] for item in side["results"]] for side in turned] == [[True, False]] * 2
    assert encoder["results"][1] != recommended["results"][1]
