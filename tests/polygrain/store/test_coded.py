import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polygrain.store import arrays, coded
from polygrain.store.coded import Coding

SIDE = 24


@pytest.fixture
def squares() -> np.ndarray:
    # Smooth pictures: a fifth of noise would not fit what is estimated.
    waves = np.random.default_rng(0).normal(size=(53, 3, 3, 3))
    smooth = np.stack(
        [np.array(Image.fromarray(np.uint8(np.clip(90 * w + 128, 0, 255))).resize((SIDE, SIDE))) for w in waves]
    )
    return smooth.astype(np.uint8)


@pytest.fixture(params=["jpeg", "webp"])
def coding(request, monkeypatch) -> Coding:
    coding = Coding(request.param, 90)
    monkeypatch.setattr(arrays, "SHARD_BYTES", 20 * coding.estimate(SIDE))
    return coding


def write(path: Path, squares: np.ndarray, coding: Coding, block: int = 7) -> Path:
    with arrays.create(path, squares.shape[1:], "uint8", coding=coding) as writer:
        for start in range(0, len(squares), block):
            writer.append(squares[start : start + block])
    return path


def shards(path: Path) -> list[bytes]:
    return [(path / f"c/{i}/0/0/0").read_bytes() for i in range(len(list((path / "c").iterdir())))]


def plain(square: np.ndarray, coding: Coding) -> np.ndarray:
    """What becomes of a square, by Pillow alone."""
    options = {"method": 2} if coding.format == "webp" else {}
    sink = io.BytesIO()
    Image.fromarray(square).save(sink, coding.format, quality=coding.quality, **options)
    return np.array(Image.open(sink))


def test_open__gives_what_pillow_makes_of_each_square(tmp_path, squares, coding):
    reader = arrays.open(write(tmp_path / "pixels.zarr", squares, coding))
    assert len(reader.shards) == 3 and reader.shape == squares.shape
    expected = np.stack([plain(square, coding) for square in squares])
    np.testing.assert_array_equal(reader[:], expected)
    rows = np.random.default_rng(1).integers(0, len(squares), 40)
    np.testing.assert_array_equal(reader[rows], expected[rows])
    np.testing.assert_array_equal(reader[rows[:3]], expected[rows[:3]])
    assert np.abs(expected.astype(int) - squares).mean() < 3


def test_writer__the_same_bytes_in_blocks_of_any_size_and_behind_another_writer(tmp_path, squares, coding):
    for name, block in (("a", 7), ("b", 50)):
        write(tmp_path / name / "pixels.zarr", squares, coding, block)
    writer = arrays.Writer(tmp_path / "c/pixels.zarr", squares.shape[1:], "uint8", coding)
    writer.append(squares[:47])  # two shards, and seven that are lost with the writer
    for stray in ("c/pixels.zarr/c/2/0/0/0.1f.partial", "c/pixels.zarr/c/7/0/0/0", "c/pixels.zarr/zarr.1f.partial"):
        (tmp_path / stray).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stray).write_bytes(b"half")
    writer = arrays.Writer(tmp_path / "c/pixels.zarr", squares.shape[1:], "uint8", coding, done=writer.shards)
    assert writer.rows == 40
    writer.append(squares[40:])
    writer.close()
    files = [
        {
            file.relative_to(tmp_path / name): file.read_bytes()
            for file in (tmp_path / name).rglob("*")
            if file.is_file()
        }
        for name in "abc"
    ]
    assert files[0] == files[1] == files[2]


def test_concatenate__raw_and_coded_squares_as_one(tmp_path, squares, coding):
    write(tmp_path / "a/pixels.zarr", squares, coding)
    arrays.write(tmp_path / "b/pixels.zarr", squares[:9])
    joined = arrays.concatenate([arrays.open(tmp_path / name / "pixels.zarr") for name in "ab"])
    rows = np.array([60, 2, 53, 52])
    expected = np.stack([squares[7], plain(squares[2], coding), squares[0], plain(squares[52], coding)])
    np.testing.assert_array_equal(joined[rows], expected)


@pytest.mark.parametrize("name", ["cut", "empty", "large", "png", "grey", "flipped"])
def test_open__foreign_bytes_name_shard_and_row(tmp_path, squares, coding, name):
    def file(image, kind=coding.format):
        sink = io.BytesIO()
        image.save(sink, kind)
        return sink.getvalue()

    path = write(tmp_path / "pixels.zarr", squares, coding)
    codes = coded.encode_all(squares[20:40], coding)
    content = {
        "cut": codes[3][: len(codes[3]) // 2],
        "empty": b"",
        "large": file(Image.new("RGB", (2000, 2000))),
        "png": file(Image.new("RGB", (SIDE, SIDE)), "png"),
        "grey": file(Image.new("RGBA" if coding.format == "webp" else "L", (SIDE, SIDE))),
    }
    flipped = codes[3][:30] + bytes([codes[3][30] ^ 1]) + codes[3][31:]
    codes[3] = flipped if name == "flipped" else coded.with_crc(content[name])
    (path / "c/1/0/0/0").write_bytes(coded.shard(codes, 20))
    reader = arrays.open(path)
    reader[np.array([22, 24])]
    for rows in (slice(0, 53), np.array([23])):
        with pytest.raises(ValueError, match=r"pixels.zarr: shard 1 of 3, row 3 is missing or damaged .*dvc repro"):
            reader[rows]


def test_reader__works_in_a_forked_process(tmp_path, squares, coding):
    reader = arrays.open(write(tmp_path / "pixels.zarr", squares, coding))
    here = reader[:]
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(reader[:], here) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_in_threads__processes_of_a_machine_share_its_cores(monkeypatch):
    monkeypatch.setattr(coded, "cores", lambda: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    names = []
    coded.in_threads(lambda _: names.append(threading.current_thread().name), 64)
    assert len(names) == 64 and len(set(names)) <= 2


@pytest.fixture(params=["raw", "jpeg", "webp"])
def rectangles(request, monkeypatch, squares) -> tuple[list[np.ndarray], Coding]:
    coding = Coding(request.param, 90, SIDE)
    monkeypatch.setattr(arrays, "SHARD_BYTES", 20 * coding.estimate(SIDE))
    sizes = [((SIDE, SIDE), (60, SIDE), (SIDE, 36), (SIDE, 72))[i % 4] for i in range(len(squares))]
    return [np.array(Image.fromarray(one).resize(size)) for one, size in zip(squares, sizes, strict=True)], coding


def write_rectangles(path: Path, pictures: list[np.ndarray], coding: Coding) -> arrays.Reader:
    with arrays.create(path, (3 * SIDE, 3 * SIDE, 3), "uint8", coding=coding) as writer:
        writer.append(pictures)
    return arrays.open(path)


def test_rectangles__are_read_whole_shape_by_shape_and_as_centre_squares(tmp_path, rectangles):
    pictures, coding = rectangles
    reader = write_rectangles(tmp_path / "pixels.zarr", pictures, coding)
    expected = pictures if coding.format == "raw" else [plain(one, coding) for one in pictures]
    assert len(reader.shards) == 3 and reader.shape == (53, SIDE, SIDE, 3)
    assert reader.shapes.tolist() == [list(one.shape[:2]) for one in pictures]
    rows, seen = np.random.default_rng(1).permutation(53), []
    for places in reader.alike(rows):
        for place, picture in zip(places, reader.whole(rows[places]), strict=True):
            np.testing.assert_array_equal(picture, expected[rows[place]])
        seen += places.tolist()
    assert sorted(seen) == list(range(53))
    for row, square in zip(rows, reader[rows], strict=True):
        top, left = ((length - SIDE) // 2 for length in expected[row].shape[:2])
        np.testing.assert_array_equal(square, expected[row][top : top + SIDE, left : left + SIDE])


def test_rectangles__the_same_bytes_behind_another_writer_and_no_other_sides(tmp_path, rectangles):
    pictures, coding = rectangles
    write_rectangles(tmp_path / "a/pixels.zarr", pictures, coding)
    row = (3 * SIDE, 3 * SIDE, 3)
    arrays.Writer(tmp_path / "b/pixels.zarr", row, "uint8", coding).append(pictures[:47])
    writer = arrays.Writer(tmp_path / "b/pixels.zarr", row, "uint8", coding, done=2)
    writer.append(pictures[40:])
    writer.close()
    assert shards(tmp_path / "a/pixels.zarr") == shards(tmp_path / "b/pixels.zarr")
    with pytest.raises(ValueError, match="the array holds rows"):
        writer.append([pictures[0][:-1]])
    file = tmp_path / "a/pixels.zarr/c/1/0/0/0"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"shard 1 of 3, row 0.*checksum"):
        arrays.open(tmp_path / "a/pixels.zarr")[20:21]


def test_rectangles__zarr_shows_each_in_the_corner_of_a_larger_one(tmp_path, rectangles):
    import zarr

    from polygrain.store import picture_codec  # noqa: F401 (which registers the codec)

    pictures, coding = rectangles
    reader = write_rectangles(tmp_path / "pixels.zarr", pictures, coding)
    array = zarr.open_array(tmp_path / "pixels.zarr", mode="r")
    for row, (height, width) in enumerate(reader.shapes[:8].tolist()):
        np.testing.assert_array_equal(array[row, :height, :width], reader.whole(np.array([row]))[0])
        assert array[row, height:].max(initial=0) == array[row, :, width:].max(initial=0) == 0
