import numpy as np

from polygrain.store import arrays, mapped_rows


def test_getitem__large_rows_are_gathered_like_small_ones(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (23, 32, 32, 3), dtype=np.uint8)
    monkeypatch.setattr(arrays, "SHARD_BYTES", 5 * images[0].nbytes)
    arrays.write(tmp_path / "pixels.zarr", images)
    reader = arrays.open(tmp_path / "pixels.zarr")
    rows = np.random.default_rng(1).integers(0, 23, 40)
    assert images[0].nbytes > mapped_rows.LARGE_ROW and len(reader.shards) == 5
    np.testing.assert_array_equal(reader[rows], images[rows])


def test_chosen__gives_some_rows_in_float32(tmp_path):
    features = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float16)
    arrays.write(tmp_path / "features.zarr", features)
    rows = np.arange(3, 290, 2)
    chosen = mapped_rows.Subset(arrays.open(tmp_path / "features.zarr"), rows)
    assert chosen.shape == (144, 4) and len(chosen) == 144 and chosen[5:9].dtype == np.float32
    np.testing.assert_array_equal(chosen[5:9], features[rows[5:9]].astype(np.float32))
    np.testing.assert_array_equal(chosen[:], features[rows])
    np.testing.assert_array_equal(chosen.some(np.array([7, 0, 7]))[:], features[rows[[7, 0, 7]]])
