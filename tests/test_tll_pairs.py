import csv

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from polygrain.store import arrays
from stages import tll_pairs
from stages.tll_pairs import main
from tests.helpers.pairs import PAIRS, SIZE, paint, study


def run(tmp_path, raw, params=PAIRS, **changes):
    tmp_path.mkdir(exist_ok=True)
    main(raw, tmp_path / "pairs", study="own", params=params, lists=study(raw, **changes))
    folder = tmp_path / "pairs"
    with (folder / "rejected.csv").open(newline="") as lines:
        rejected = {row["name"]: row["reason"] for row in csv.DictReader(lines)}
    pixels = [arrays.open(folder / side / "pixels.zarr")[:] for side in ("left", "right")]
    return pq.read_table(folder / "pairs.parquet").to_pylist(), *pixels, rejected


def test_main__rows_of_both_sides_belong_together(tmp_path):
    raw = paint(tmp_path / "raw", 12)
    table, left, right, rejected = run(tmp_path, raw)
    assert [row["name"] for row in table] == sorted(map(str, range(12))) and rejected == {}
    for i, row in enumerate(table):
        for pixels, side in ((left, "left"), (right, "right")):
            assert np.array_equal(pixels[i], np.asarray(Image.open(raw / row[side]))), (row, side)


def test_main__a_pair_that_cannot_be_decoded_is_left_out(tmp_path):
    raw = paint(tmp_path / "raw", 4)
    (raw / "right/2.webp").write_bytes(b"no image")
    table, left, right, rejected = run(tmp_path, raw)
    assert [row["name"] for row in table] == ["0", "1", "3"] and len(left) == len(right) == 3
    assert list(rejected) == ["2"] and rejected["2"].startswith("right/2.webp: not readable")


def test_main__squash_keeps_what_a_crop_cuts_off(tmp_path):
    raw = paint(tmp_path / "raw", 2)
    wide = Image.new("RGB", (3 * SIZE, SIZE), "black")
    wide.paste((200, 255, 255), (SIZE, 0, 2 * SIZE, SIZE))
    wide.paste((255, 255, 255), (SIZE, 0, 2 * SIZE, SIZE // 2))
    wide.save(raw / "left/0.png")
    for shape, darkest in (("crop", 200), ("squash", 0)):
        _, left, *_ = run(tmp_path / shape, raw, PAIRS.model_copy(update={"shape": shape}))
        assert left[0].min() == darkest and left[0].max() == 255


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: (raw / "right/0.webp").unlink(), "same name: 0"),
        (lambda raw: [file.write_bytes(b"x") for file in raw.rglob("*.png")], "none of the 3 pairs"),
    ],
)
def test_main__raise_and_leave_nothing(tmp_path, spoil, message):
    raw = paint(tmp_path / "raw", 3)
    spoil(raw)
    with pytest.raises(ValueError, match=message):
        run(tmp_path, raw)
    assert not list((tmp_path).glob("pairs*"))


def test_main__embedded_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(tll_pairs, "PER_CHARACTER", 1)
    monkeypatch.setattr(tll_pairs, "PLACES", 2)
    table, left, right, _ = run(tmp_path, tmp_path, source="analogies")
    assert len(table) == len(left) == len(right) == 52 + 2 * 2 * 3
