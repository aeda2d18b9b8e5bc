import numpy as np
import pytest
import zarr

from polygrain.store import arrays


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(arrays, "SHARD_BYTES", 4 * 4 * 4 * 3 * 10)  # ten 4x4 images of 48 bytes, times four


def write(path, values, blocks=(7, 13)):
    with arrays.create(path, values.shape[1:], str(values.dtype)) as writer:
        start, i = 0, 0
        while start < len(values):
            stop = start + blocks[i % len(blocks)]
            writer.append(values[start:stop])
            start, i = stop, i + 1


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (101, 4, 4, 3), dtype=np.uint8)


def test_open__returns_what_was_written_in_any_block_size(tmp_path, images, small_shards):
    path = tmp_path / "pixels.zarr"
    write(path, images)
    reader = arrays.open(path)
    assert len(reader.shards) == 3
    np.testing.assert_array_equal(reader[:], images)
    np.testing.assert_array_equal(zarr.open_array(path)[:], images)
    rows = np.random.default_rng(1).integers(0, len(images), 57)
    np.testing.assert_array_equal(reader[rows], images[rows])
    np.testing.assert_array_equal(reader[90:], images[90:])


def test_create__writes_the_same_bytes_twice(tmp_path, images, small_shards):
    files = []
    for name in ("a", "b"):
        write(tmp_path / name / "pixels.zarr", images, (7, 13) if name == "a" else (50,))
        folder = tmp_path / name
        files.append({p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()})
    assert files[0] == files[1]


def test_open__empty_array(tmp_path):
    arrays.write(tmp_path / "labels.zarr", np.empty(0, np.int64))
    assert len(arrays.open(tmp_path / "labels.zarr")) == 0


def test_create__an_unfinished_array_is_refused(tmp_path, images, small_shards):
    path = tmp_path / "pixels.zarr"
    with pytest.raises(RuntimeError), arrays.create(path, images.shape[1:], "uint8") as writer:
        writer.append(images)
        raise RuntimeError
    with pytest.raises(ValueError, match="did not finish"):
        arrays.open(path)


@pytest.mark.parametrize("change", [lambda c: b"", lambda c: c[:-5], lambda c: c[:-500], None])
def test_open__a_missing_or_cut_shard_is_named(tmp_path, images, small_shards, change):
    write(tmp_path / "pixels.zarr", images)
    file = tmp_path / "pixels.zarr/c/1/0/0/0"
    file.write_bytes(change(file.read_bytes())) if change else file.unlink()
    with pytest.raises(ValueError, match=r"shard 1 of 3 is missing or damaged .*dvc repro"):
        arrays.open(tmp_path / "pixels.zarr")


def test_create__refuses_other_rows_than_declared(tmp_path):
    with (
        pytest.raises(ValueError, match="the array holds rows"),
        arrays.create(tmp_path / "features.zarr", (4,), "float32") as writer,
    ):
        writer.append(np.zeros((3, 5), np.float32))
    with pytest.raises(ValueError, match="declared image dim"):
        arrays.write(tmp_path / "things.zarr", np.zeros(3), "image dim")


def test_concatenate__equals_one_array(tmp_path, images, small_shards):
    write(tmp_path / "a/pixels.zarr", images[:60])
    write(tmp_path / "b/pixels.zarr", images[60:])
    joined = arrays.concatenate([arrays.open(tmp_path / part / "pixels.zarr") for part in "ab"])
    rows = np.random.default_rng(2).permutation(len(images))
    np.testing.assert_array_equal(joined[rows], images[rows])
    assert joined.shape == images.shape
