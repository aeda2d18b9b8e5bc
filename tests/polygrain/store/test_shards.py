import numpy as np
import pytest

from polygrain.store import arrays, shards


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_write__gives_the_bytes_of_a_single_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "SHARD_BYTES", 256 * 8 * 4)
    values = np.random.default_rng(0).normal(size=(700, 8)).astype(np.float32)
    asked = []

    def compute(part):
        asked.append((part.start, part.stop))
        yield from np.array_split(values[part], 3)

    shards.write(tmp_path / "a" / "features.zarr", 700, (8,), "float32", compute)
    arrays.write(tmp_path / "b" / "features.zarr", values)
    assert asked == [(0, 256), (256, 512), (512, 700)]
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    np.testing.assert_array_equal(arrays.open(tmp_path / "a" / "features.zarr")[:], values)


def test_write__says_what_a_wrong_block_holds(tmp_path):
    with pytest.raises(ValueError, match=r"shard float64 \(4, 8\) where float32"):
        shards.write(tmp_path / "features.zarr", 4, (8,), "float32", lambda part: [np.zeros((4, 8))])
