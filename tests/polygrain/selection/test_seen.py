import numpy as np
import pytest

from polygrain.encoder.model import load
from polygrain.encoder.stored import Stored
from polygrain.selection.criterion import Sample
from polygrain.selection.seen import Seen, read
from tests.helpers.small import write_encoder

FACTS = {"digest": "x", "side": 32, "widths": [3], "blocks": 1}


def test_seen__is_read_as_it_was_written(tmp_path):
    generator, sample = np.random.default_rng(0), Sample(np.array([5, 2, 9, 1]), np.array(list("abba"), dtype=object))
    views = {side: generator.normal(size=(4, 5, 3)).astype(np.float16) for side in (32, 48)}
    looks = generator.normal(size=(4, 6)).astype(np.float32)
    Seen(sample, {side: Stored(rows, FACTS, "resolution") for side, rows in views.items()}, looks).write(tmp_path)
    again = read(tmp_path)
    np.testing.assert_array_equal(again.sample.rows, sample.rows)
    assert again.sample.tasks.tolist() == sample.tasks.tolist() and {*again.views} == {32, 48}
    for side, rows in views.items():
        np.testing.assert_array_equal(again.views[side].rows[:], rows)
        assert again.views[side].facts == FACTS and again.views[side].stage == "resolution"
    np.testing.assert_array_equal(again.looks, looks)


def test_seen__nothing_where_no_task_can_tell(tmp_path):
    with pytest.raises(ValueError, match=r"sample.parquet is missing"):
        read(tmp_path)
    Seen(Sample(np.array([], np.int64), np.array([], object))).write(tmp_path)
    again = read(tmp_path)
    assert len(again.sample.rows) == 0 and again.views == {} and again.looks is None


def test_require__names_the_sides_that_were_seen(tmp_path):
    model = load(write_encoder(tmp_path / "encoder"))
    seen = Seen(Sample(np.arange(2), np.array(["a"] * 2)), {48: Stored(np.zeros((2, 5, 3)), FACTS, "resolution")})
    with pytest.raises(ValueError, match=r"saw images at 48 px; 32 px is expected: run `dvc repro resolution`"):
        seen.require(model, 1)
