import itertools

import numpy as np
import pytest

from polygrain.sources.decode import FORMATS
from polygrain.sources.streams import ingest, stream
from polygrain.sources.streams.entry import Entry
from polygrain.sources.streams.ingest import Ingestion
from polygrain.store import arrays
from polygrain.store.coded import Coding
from polygrain.store.rectangle import Unreadable
from tests.helpers import streams

SIDE = 8


class Lost(Exception):
    """Stands for a kill: nothing is tidied up."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(arrays, "SHARD_BYTES", 10 * SIDE * SIDE * 3)
    monkeypatch.setattr(ingest, "BLOCK", 4)
    monkeypatch.setattr(ingest, "WAITING", 3)


def take(images, folder, stop=None, *how):
    """One run over the stream, which dies after `stop` entries."""
    ingestion = Ingestion(folder, SIDE, *how)
    seen = 0
    for seen, _ in enumerate(ingestion.run(images), 1):
        if seen == stop:
            raise Lost
    rows = [row for part in ingestion.parts() for row in part.rows]
    rejected = [entry for part in ingestion.parts() for entry in part.rejected]
    return arrays.open(ingestion.pixels)[:], rows, rejected, seen


@pytest.fixture
def images(tmp_path):
    """Two tars with a copy, the same picture in other bytes, a broken image and one without a label."""
    members = streams.samples(0, 40)
    members[2 * 7] = (members[2 * 7][0], streams.png(2))
    members[2 * 27] = (members[2 * 27][0], streams.png(3) + b"more")
    members[2 * 21] = (members[2 * 21][0], b"broken")
    del members[2 * 30 + 1]
    for number, part in enumerate((members[:40], members[40:])):
        streams.tar(tmp_path / f"in/{number}.tar", *part)
    return stream.find(tmp_path / "in", "tars", "*")


def test_run__in_order_without_copies_and_what_differs(images, tmp_path):
    pixels, rows, rejected, seen = take(images, tmp_path / "out")
    used = [i for i in range(40) if i not in (7, 21, 27, 30)]
    assert streams.colours(pixels) == used and seen == 40
    assert [row[0][-9:] for row in rows] == [f"{i:05d}.png" for i in used]
    assert [row[1] for row in rows] == [str(i % 3) for i in used]
    assert rejected == [
        ["0.tar/00007.png", "duplicate of 0.tar/00002.png"],
        ["1.tar/00021.png", f"not readable as {', '.join(FORMATS)}"],
        ["1.tar/00027.png", "same picture as 0.tar/00003.png"],
        ["1.tar/00030.png", "it has no label, unlike the first image"],
    ]


@pytest.mark.parametrize("how", [("crop",), ("whole", Coding("raw", side=SIDE))], ids=["squares", "rectangles"])
@pytest.mark.parametrize("stop", [1, 10, 11, 25, 39])
def test_run__goes_on_behind_the_last_full_shard(images, tmp_path, stop, how):
    whole = take(images, tmp_path / "whole", None, *how)
    with pytest.raises(Lost):
        take(images, tmp_path / "out", stop, *how)
    again = take(images, tmp_path / "out", None, *how)
    assert np.array_equal(again[0], whole[0]) and again[1:3] == whole[1:3]
    # Ten squares fill a shard, or nine rectangles with their headers; some entries are left out on the way.
    assert (again[3] < 40) == (stop > (10 if how == ("crop",) else 9))


def test_run__begins_again_where_a_shard_is_gone(images, tmp_path):
    whole = take(images, tmp_path / "out")
    (tmp_path / "out/pixels.zarr/c/0/0/0/0").unlink()
    again = take(images, tmp_path / "out")
    assert np.array_equal(again[0], whole[0]) and again[1:] == whole[1:]


def test_decoded__holds_few_bytes_at_a_time(monkeypatch):
    monkeypatch.setattr(ingest, "WAITING_BYTES", 250)
    taken = itertools.count()
    made = 0

    def entries():
        nonlocal made
        for index in range(50):
            made += 1
            yield Entry(0, index, "", "", bytes(100) if index % 2 else Unreadable("no"))

    for entry, outcome in ingest.decoded(entries(), lambda entry: entry.number):
        assert entry.content == b"" and outcome == entry.number == next(taken)
        assert made - entry.number <= 6
