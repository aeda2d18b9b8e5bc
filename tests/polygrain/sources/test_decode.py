import io
import os
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polygrain.sources import decode as module
from polygrain.sources.decode import FORMATS, decode, decode_all, upright
from polygrain.store.square import Unreadable

SIZE = 16
LIMIT = 10**6


@pytest.fixture
def quarters() -> np.ndarray:
    """Red, green, blue, yellow quarters of a 64 x 64 image."""
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32, :32], pixels[:32, 32:] = (200, 0, 0), (0, 200, 0)
    pixels[32:, :32], pixels[32:, 32:] = (0, 0, 200), (200, 200, 0)
    return pixels


def corners(pixels: np.ndarray) -> np.ndarray:
    return pixels[3:-3, 3:-3][:: SIZE - 7, :: SIZE - 7].reshape(4, 3).astype(int)


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def reason(file: Path) -> str:
    with pytest.raises(Unreadable) as caught:
        decode(file, SIZE, LIMIT)
    return str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_decode__reads_every_allowed_format(tmp_path: Path, quarters: np.ndarray, kind: str) -> None:
    file = tmp_path / "file"
    Image.fromarray(quarters).save(file, kind)
    picture = decode(file, SIZE, LIMIT)
    assert picture.pixels.shape == (SIZE, SIZE, 3)
    assert picture.pixels.dtype == np.uint8
    np.testing.assert_allclose(corners(picture.pixels), corners(quarters[::4, ::4]), atol=30)
    assert picture[1:4] == (64, 64, file.stat().st_size)


def test_decode__equals_scaling_the_short_side_and_cropping(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 80, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    plain = Image.fromarray(noise).resize((32, 16), Image.Resampling.LANCZOS).crop((8, 0, 24, 16))
    np.testing.assert_array_equal(decode(tmp_path / "a.png", SIZE, LIMIT).pixels, np.asarray(plain))


def test_decode__reduced_jpeg_is_close_to_the_whole_one(tmp_path: Path) -> None:
    smooth = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)).resize((800, 600))
    smooth.save(tmp_path / "a.jpg", quality=95)
    picture = decode(tmp_path / "a.jpg", SIZE, LIMIT)
    with Image.open(tmp_path / "a.jpg") as image:
        whole = image.resize((SIZE, SIZE), Image.Resampling.LANCZOS, (100, 0, 700, 600))
    assert np.abs(picture.pixels.astype(int) - np.asarray(whole)).max() <= 8
    assert (picture.width, picture.height) == (800, 600)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_decode__turns_by_exif(tmp_path: Path, quarters: np.ndarray, orientation: int) -> None:
    turn = {1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: lambda a: a.swapaxes(0, 1)}
    turn |= {6: lambda a: np.rot90(a, 3), 7: lambda a: np.rot90(a, 2).swapaxes(0, 1), 8: np.rot90}
    wide = np.repeat(quarters, 2, axis=1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(wide).save(tmp_path / "a.jpg", exif=exif, quality=95, subsampling=0)
    picture = decode(tmp_path / "a.jpg", SIZE, LIMIT)
    upright = turn[orientation](quarters)[::4, ::4]
    np.testing.assert_allclose(corners(picture.pixels), corners(upright), atol=30)
    assert (picture.width, picture.height) == ((64, 128) if orientation >= 5 else (128, 64))


def test_decode__lays_transparency_on_white(tmp_path: Path) -> None:
    palette = Image.new("P", (32, 32), 0)
    palette.putpalette([10, 20, 30, 200, 0, 0])
    palette.paste(1, (0, 0, 32, 16))
    palette.save(tmp_path / "palette.png", transparency=0)
    Image.new("LA", (32, 32), (0, 128)).save(tmp_path / "la.png")
    Image.new("RGBA", (32, 32), (255, 0, 0, 0)).save(tmp_path / "rgba.png")
    shown = decode(tmp_path / "palette.png", SIZE, LIMIT).pixels
    assert shown[2, 2].tolist() == [200, 0, 0]
    assert shown[-3, 2].tolist() == [255, 255, 255]
    assert decode(tmp_path / "la.png", SIZE, LIMIT).pixels[5, 5].tolist() == [127, 127, 127]
    assert decode(tmp_path / "rgba.png", SIZE, LIMIT).pixels[5, 5].tolist() == [255, 255, 255]


def test_decode__scales_16_bits_to_8(tmp_path: Path) -> None:
    values = np.repeat(np.array([[0, 257 * 100, 65535, 257 * 100]], np.uint16), 8, axis=1).repeat(32, axis=0)
    Image.fromarray(values).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode.startswith("I")
    row = decode(tmp_path / "a.png", 32, LIMIT).pixels[16, [3, 12, 20, 28]]
    np.testing.assert_allclose(row, np.array([[0], [100], [255], [100]]).repeat(3, axis=1), atol=3)


def test_decode__takes_the_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert decode(tmp_path / "a.gif", SIZE, LIMIT).pixels[8, 8].tolist() == [255, 0, 0]


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (1, 1)])
def test_decode__extreme_shapes(tmp_path: Path, shape: tuple[int, int]) -> None:
    Image.new("RGB", shape, "red").save(tmp_path / "a.png")
    picture = decode(tmp_path / "a.png", SIZE, LIMIT)
    assert picture.pixels.shape == (SIZE, SIZE, 3)
    assert (picture.width, picture.height) == shape


def test_decode__refuses_more_pixels_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(png_header(1001, 1000))
    assert "1001 x 1000 pixels" in reason(tmp_path / "large.png")
    (tmp_path / "bomb.png").write_bytes(png_header(60000, 60000))
    assert "exceeds limit" in reason(tmp_path / "bomb.png")


def test_decode__refuses_a_truncated_file(tmp_path: Path, quarters: np.ndarray) -> None:
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF"):
        stream = io.BytesIO()
        noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(noise).save(stream, kind)
        file = tmp_path / f"{kind}.img"
        file.write_bytes(stream.getvalue()[: len(stream.getvalue()) // 2])
        assert "cannot be decoded" in reason(file) or "not readable" in reason(file)


def test_decode__refuses_what_is_not_an_image(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("hello")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "vector.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    os.mkfifo(tmp_path / "pipe.jpg")
    Image.fromarray(np.zeros((20, 20), np.float32)).save(tmp_path / "float.tif")
    assert reason(tmp_path / "text.jpg").startswith("not readable as JPEG")
    assert reason(tmp_path / "empty.jpg") == "empty file"
    assert reason(tmp_path / "vector.jpg").startswith("not readable as JPEG")
    assert reason(tmp_path / "pipe.jpg") == "not a regular file"
    assert "floating-point" in reason(tmp_path / "float.tif")
    assert "No such file" in reason(tmp_path / "gone.jpg")


def test_decode__survives_any_damage(tmp_path: Path, quarters: np.ndarray) -> None:
    random, file = np.random.default_rng(0), tmp_path / "damaged"
    outcomes = set()
    for kind in FORMATS:
        stream = io.BytesIO()
        Image.fromarray(quarters).save(stream, kind)
        for _ in range(60):
            damaged = np.frombuffer(stream.getvalue(), np.uint8).copy()
            damaged[random.integers(0, min(len(damaged), 400), 8)] = random.integers(0, 256, 8)
            file.write_bytes(damaged.tobytes())
            try:
                outcomes.add(decode(file, SIZE, LIMIT).pixels.shape)
            except Unreadable:
                outcomes.add("refused")
    assert outcomes == {(SIZE, SIZE, 3), "refused"}


def test_decode_all__keeps_the_order(tmp_path: Path) -> None:
    names = [f"{i:03d}.png" for i in range(300)]
    for i, name in enumerate(names):
        if i % 7:
            Image.new("L", (SIZE, SIZE), i % 256).save(tmp_path / name)
        else:
            (tmp_path / name).write_text("x")
    for i, outcome in enumerate(decode_all(tmp_path, names, SIZE, LIMIT)):
        if i % 7:
            assert outcome.pixels[0, 0, 0] == i % 256
        else:
            assert outcome.startswith("not readable")
    assert i == 299


def png(width: int, height: int, depth: int, colour: int, rows: bytes, key: bytes = b"", interlaced: int = 0) -> bytes:
    """A PNG of these filtered rows, whether or not they are as many as it says; `key` is its transparent colour."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    transparent = chunk(b"tRNS", key) if key else b""
    parts = [chunk(b"IHDR", head), transparent, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("kind", "options"), [("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("JPEG", {})])
def test_decode__size_is_that_of_the_upright_image(tmp_path, quarters, orientation, kind, options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(quarters[:, :40]).save(tmp_path / "file", kind, exif=exif, **options)
    picture = decode(tmp_path / "file", SIZE, LIMIT)
    assert (picture.width, picture.height) == ((64, 40) if orientation >= 5 else (40, 64))


@pytest.mark.parametrize(
    ("depth", "row", "key"),
    [(16, struct.pack(">2H", 300, 300), 300), (8, b"\5\5", 5), (4, b"\x33", 3), (2, b"\x50", 1), (1, b"\x00", 0)],
)
def test_decode__a_transparent_grey_lies_on_white(tmp_path, depth, row, key):
    (tmp_path / "a.png").write_bytes(png(2, 2, depth, 0, 2 * (b"\0" + row), struct.pack(">H", key)))
    assert (decode(tmp_path / "a.png", SIZE, LIMIT).pixels == 255).all()
    (tmp_path / "a.png").write_bytes(png(2, 2, depth, 0, 2 * (b"\0" + row)))
    assert not (decode(tmp_path / "a.png", SIZE, LIMIT).pixels == 255).any()


def test_decode__a_transparent_colour_of_16_bits_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(png(1, 1, 16, 2, b"\0" + bytes(6), bytes(6)))
    assert "16-bit channels" in reason(tmp_path / "a.png")


def test_decode__a_progressive_jpeg_of_many_scans_is_refused(tmp_path: Path, quarters: np.ndarray) -> None:
    stream = io.BytesIO()
    Image.fromarray(quarters).save(stream, "JPEG", progressive=True)
    content = stream.getvalue()
    (tmp_path / "a.jpg").write_bytes(content)
    decode(tmp_path / "a.jpg", SIZE, LIMIT)
    scan = content[content.rindex(b"\xff\xda") : -2]
    (tmp_path / "a.jpg").write_bytes(content[:-2] + 100 * scan + content[-2:])
    assert "progressive JPEG of 1" in reason(tmp_path / "a.jpg")


def test_decode__too_many_bytes_or_too_little_memory_leave_an_image_out(tmp_path, monkeypatch) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(module, "square", fail)
    assert reason(tmp_path / "a.png") == "too large for the memory of this machine"
    with (tmp_path / "a.png").open("r+b") as file:
        file.truncate(module.MOST_BYTES + 1)  # a hole, which takes no space
    assert "at most" in reason(tmp_path / "a.png")


def test_allowance__bounds_the_pixels_of_all_threads() -> None:
    allowance, taken, most = module.Allowance(100), [], []

    def work(pixels: int) -> None:
        with allowance.take(pixels):
            taken.append(pixels)
            most.append(sum(taken))
            time.sleep(0.002)
            taken.remove(pixels)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [40, 30, 100, 10, 60, 500, 20, 40] * 4))
    assert max(most) == 500 and max(total for total in most if total != 500) <= 100 and allowance.taken == 0


def test_upright__whole_turned_and_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (40, 20), (200, 0, 0, 0))
    turned = Image.Exif()
    turned[0x0112] = 6
    image.save(tmp_path / "a.png", exif=turned)
    found = upright(io.BytesIO((tmp_path / "a.png").read_bytes()), LIMIT)
    assert (found.size, found.mode, found.getpixel((5, 5))) == ((20, 40), "RGB", (255, 255, 255))


@pytest.mark.parametrize("content", [b"", b"no image", png_header(1001, 1000)])
def test_upright__refuses_what_decode_refuses(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    reason(tmp_path / "a")
    with pytest.raises(Unreadable):
        upright(io.BytesIO(content), LIMIT)
