import errno
import io
import os
import re
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from pillow_heif import from_bytes

from polygrain.sources import decode as module
from polygrain.sources.decode import FORMATS, decode, decode_all, upright
from polygrain.store.rectangle import Unreadable

SIZE = 16


module.know_heif()  # to write it, too


@pytest.fixture(autouse=True)
def few_pixels(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_PIXELS", 10**6)


@pytest.fixture
def quarters() -> np.ndarray:
    """Red, green, blue, yellow quarters of a 64 x 64 image."""
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32, :32], pixels[:32, 32:] = (200, 0, 0), (0, 200, 0)
    pixels[32:, :32], pixels[32:, 32:] = (0, 0, 200), (200, 200, 0)
    return pixels


def corners(pixels: np.ndarray) -> np.ndarray:
    return pixels[3:-3, 3:-3][:: SIZE - 7, :: SIZE - 7].reshape(4, 3).astype(int)


def png(width: int, height: int) -> bytes:
    """A PNG without rows that says it has so many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"")), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def reason(file: Path) -> str:
    with pytest.raises(Unreadable) as caught:
        decode(file, SIZE)
    return str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_decode__reads_every_allowed_format(tmp_path: Path, quarters: np.ndarray, kind: str) -> None:
    file = tmp_path / "file"
    Image.fromarray(quarters).save(file, kind)
    picture = decode(file, SIZE)
    assert picture.pixels.shape == (SIZE, SIZE, 3)
    assert picture.pixels.dtype == np.uint8
    np.testing.assert_allclose(corners(picture.pixels), corners(quarters[::4, ::4]), atol=30)
    assert picture[1:4] == (64, 64, file.stat().st_size)


def test_decode__equals_scaling_the_short_side_and_cropping(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 80, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    plain = Image.fromarray(noise).resize((32, 16), Image.Resampling.LANCZOS).crop((8, 0, 24, 16))
    np.testing.assert_array_equal(decode(tmp_path / "a.png", SIZE).pixels, np.asarray(plain))


def test_decode__large_and_narrow_images(tmp_path: Path) -> None:
    smooth = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)).resize((800, 600))
    smooth.save(tmp_path / "a.jpg", quality=95)
    picture = decode(tmp_path / "a.jpg", SIZE)
    with Image.open(tmp_path / "a.jpg") as image:
        whole = image.resize((SIZE, SIZE), Image.Resampling.LANCZOS, (100, 0, 700, 600))
    assert np.abs(picture.pixels.astype(int) - np.asarray(whole)).max() <= 8
    assert (picture.width, picture.height) == (800, 600)
    for shape in ((2, 5000), (5000, 2), (2, 2)):
        NOISE.resize(shape).save(tmp_path / "a.png")
        picture = decode(tmp_path / "a.png", SIZE)
        assert picture.pixels.shape == (SIZE, SIZE, 3) and (picture.width, picture.height) == shape


@pytest.mark.parametrize(
    ("orientation", "kind"), [*((i, "JPEG") for i in range(1, 9)), (6, "TIFF"), *((i, "HEIF") for i in range(2, 9))]
)
def test_decode__turns_by_exif(tmp_path: Path, quarters: np.ndarray, orientation: int, kind: str) -> None:
    turn = {1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: lambda a: a.swapaxes(0, 1)}
    turn |= {6: lambda a: np.rot90(a, 3), 7: lambda a: np.rot90(a, 2).swapaxes(0, 1), 8: np.rot90}
    wide = np.repeat(quarters, 2, axis=1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(wide).save(
        tmp_path / "a", kind, exif=exif.tobytes(), **({"quality": 95, "subsampling": 0} if kind == "JPEG" else {})
    )
    picture = decode(tmp_path / "a", SIZE)
    upright = turn[orientation](quarters)[::4, ::4]
    np.testing.assert_allclose(corners(picture.pixels), corners(upright), atol=30)
    assert (picture.width, picture.height) == ((64, 128) if orientation >= 5 else (128, 64))


def content_of(image: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
BLOCKS = NOISE.resize((8, 8)).resize((64, 64))
PROGRESSIVE = content_of(NOISE, "JPEG", progressive=True)
LARGE_TEXT = PngImagePlugin.PngInfo()
LARGE_TEXT.add_text("a", "x" * (PngImagePlugin.MAX_TEXT_CHUNK + 1), zip=True)
WIDE = NOISE.resize((1600, 800), Image.Resampling.BOX)
TWO_SCANS = content_of(WIDE, "JPEG")[:-2]
TWO_SCANS += TWO_SCANS[TWO_SCANS.rindex(b"\xff\xda") :] + b"\xff\xd9"
LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png(1001, 1000), "1001 x 1000 pixels"),
        (png(60000, 60000), "exceeds limit"),
        (PROGRESSIVE[:-2] + 100 * LAST_SCAN + PROGRESSIVE[-2:], "progressive JPEG of 1"),
        (content_of(WIDE, "JPEG", progressive=True), "1600 x 800 pixels"),
        (TWO_SCANS, "1600 x 800 pixels"),
        (content_of(WIDE.resize((8, 8)).resize((4400, 4400)), "JPEG"), "4400 x 4400 pixels"),
        (content_of(Image.new("RGB", WIDE.size), "HEIF", enc_params={"preset": "ultrafast"}), "1600 x 800 pixels"),
        (content_of(NOISE, "HEIF")[:2000], "cannot be decoded"),
        (content_of(NOISE, "JPEG")[:2000], "cannot be decoded"),
        (content_of(NOISE, "PNG")[:2000], "cannot be decoded"),
        (content_of(NOISE, "WEBP")[:2000], "cannot be decoded|not readable"),
        (content_of(NOISE, "PNG", pnginfo=LARGE_TEXT), "too large"),
        (b"hello", "not readable as JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not readable as JPEG"),
        (b"", "empty file"),
        (content_of(Image.new("RGB", (20, 20), "red"), "JPEG"), "one colour only"),
        (content_of(Image.new("RGBA", (20, 20)), "PNG"), "one colour only"),
        (content_of(Image.new("F", (20, 20)), "TIFF"), "one colour only"),
    ],
)
def test_decode__refuses_hostile_and_damaged_content(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a").write_bytes(content)
    assert re.search(message, reason(tmp_path / "a")) and "\n" not in reason(tmp_path / "a")
    with pytest.raises(Unreadable):
        upright(io.BytesIO(content))


def test_decode__a_large_jpeg_is_scaled_while_it_is_decoded() -> None:
    stream = io.BytesIO(content_of(WIDE, "JPEG"))
    picture = module.picture(stream, SIZE)
    expected = np.asarray(NOISE.resize((SIZE, SIZE), Image.Resampling.LANCZOS, (16, 0, 48, 64))).astype(int)
    assert np.abs(picture.pixels - expected).mean() < 8 and picture[1:3] == (1600, 800)
    assert upright(stream).size == (400, 200)


def test_decode__of_a_heif_the_primary_picture_and_nothing_else() -> None:
    size, plain = (64, 64), Image.new("RGB", (64, 64), "red")
    with_alpha = NOISE.copy()
    with_alpha.putalpha(128)
    of_10_bits = io.BytesIO()
    from_bytes("RGB;16", size, (np.asarray(NOISE).astype(np.uint16) * 257).tobytes()).save(of_10_bits, quality=-1)
    one = {"save_all": True, "append_images": [NOISE], "primary_index": 1}
    contents = [
        content_of(plain, "HEIF", **one),
        content_of(NOISE, "HEIF", thumbnails=[32]),
        content_of(with_alpha, "HEIF").replace(b"auxid:1", b"auxid:2"),  # a depth map
        of_10_bits.getvalue(),
    ]
    for content in contents:
        pixels = module.picture(io.BytesIO(content), SIZE).pixels
        assert np.abs(pixels - np.asarray(NOISE.resize((SIZE, SIZE), Image.Resampling.LANCZOS)).astype(int)).mean() < 8
    with pytest.raises(Unreadable, match="one colour only"):
        module.picture(io.BytesIO(content_of(plain, "HEIF", **one | {"primary_index": 0})), SIZE)


def test_decode__a_length_beyond_any_memory_is_damage(tmp_path: Path) -> None:
    start, box, rest = content_of(NOISE, "JPEG2000").partition(b"jp2h")
    (tmp_path / "a").write_bytes(start[:-4] + struct.pack(">I4sQ", 1, box, 2**60) + rest)
    with pytest.raises(Unreadable, match="its header names more bytes than there are"):
        decode(tmp_path / "a", SIZE)


def test_decode__refuses_a_pipe_and_too_many_bytes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    assert "not a regular file" in reason(tmp_path / "pipe.jpg")
    (tmp_path / "a.png").touch()
    with (tmp_path / "a.png").open("r+b") as file:
        file.truncate(module.MOST_BYTES + 1)  # a hole, which takes no space
    assert "at most" in reason(tmp_path / "a.png")


def test_decode__survives_any_damage(tmp_path: Path, quarters: np.ndarray) -> None:
    random, file = np.random.default_rng(0), tmp_path / "damaged"
    outcomes = set()
    for kind in FORMATS:
        content = content_of(Image.fromarray(quarters), kind)
        for _ in range(20):
            damaged = np.frombuffer(content, np.uint8).copy()
            damaged[random.integers(0, min(len(damaged), 400), 8)] = random.integers(0, 256, 8)
            file.write_bytes(damaged.tobytes())
            try:
                outcomes.add(decode(file, SIZE).pixels.shape)
            except Unreadable:
                outcomes.add("refused")
    assert outcomes == {(SIZE, SIZE, 3), "refused"}


def test_decode__transparency_lies_on_white_in_the_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    frames[0].putpixel((9, 0), 0)
    frames[0].save(tmp_path / "frames.gif", save_all=True, append_images=frames[1:])
    palette = Image.new("P", (32, 32), 0)
    palette.putpalette([10, 20, 30, 200, 0, 0])
    palette.paste(1, (0, 0, 32, 16))
    palette.save(tmp_path / "palette.png", transparency=0)
    half = Image.new("LA", (32, 32), (0, 128))
    half.putpixel((9, 0), (0, 255))
    half.save(tmp_path / "half.png")
    colours = [decode(tmp_path / f, SIZE).pixels[12, 2] for f in ("frames.gif", "palette.png", "half.png")]
    assert np.array(colours).tolist() == [[255, 0, 0], [255, 255, 255], [127, 127, 127]]


def animations() -> dict[str, tuple[list[Image.Image], int]]:
    """Frames, and which of them is shown: the only one that shows something, or the last of some that fade in."""
    blank = [Image.new("RGB", (64, 64), (9 * i, 0, 0)) for i in range(4)]
    made = {f"frame {i}": ([*blank[:i], BLOCKS, *blank[i + 1 :]], i) for i in (1, 2, 3)}
    for ground in ("black", "white"):
        start = Image.new("RGB", (64, 64), ground)
        made[f"from {ground}"] = ([Image.blend(start, BLOCKS, i / 10) for i in range(1, 11)], 9)
    return made


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "AVIF", "TIFF"])
def test_decode__of_an_animation_the_frame_that_shows_something(tmp_path: Path, kind: str) -> None:
    for name, (frames, shown) in animations().items():
        frames[0].save(tmp_path / name, kind, save_all=True, append_images=frames[1:], duration=100)
        expected = np.asarray(frames[shown].resize((SIZE, SIZE), Image.Resampling.LANCZOS)).astype(int)
        assert np.abs(decode(tmp_path / name, SIZE).pixels - expected).mean() < 20, name
        assert upright(io.BytesIO((tmp_path / name).read_bytes())).getextrema()[1][1] > 100, name


def tiff(values: np.ndarray, order: str, white_is_zero: bool) -> bytes:
    """A grey TIFF, as scanners write it and Pillow does not."""
    kind = {"u": 1, "f": 3}[values.dtype.kind]
    tags = {256: 64, 257: 64, 258: 8 * values.itemsize, 259: 1, 262: int(not white_is_zero), 273: 122, 277: 1, 278: 64}
    entries = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in (tags | {339: kind}).items())
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}IH", 8, len(tags) + 1)
    return head + entries + bytes(4) + values.astype(values.dtype.newbyteorder(order)).tobytes()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("kind", "most"), [("uint8", 255), ("uint16", 65535), ("uint16", 4095), ("float32", 1)])
def test_decode__a_tiff_whose_white_is_0_as_its_twin(tmp_path: Path, order: str, kind: str, most: int) -> None:
    values = (np.asarray(NOISE)[..., 0] / 255 * most).astype(kind)
    (tmp_path / "a.tif").write_bytes(tiff(values, order, False))
    (tmp_path / "b.tif").write_bytes(tiff(most - values, order, True))
    one, other = (decode(tmp_path / name, SIZE).pixels for name in ("a.tif", "b.tif"))
    np.testing.assert_allclose(one, other, atol=1 if kind == "float32" else 0)


def test_count_scans__those_of_the_picture_alone() -> None:
    thumbnail = b"\xff\xe1\xff\xf0" + (100 * LAST_SCAN)[: 0xFFF0 - 2].ljust(0xFFF0 - 2)
    bomb = PROGRESSIVE[:-2] + 100 * (b"junk" + LAST_SCAN)
    for content, scans in ((PROGRESSIVE, 0), (bomb, 100), (bomb + b"\xff\xd9", 100)):
        inside = content[:2] + thumbnail + content[2:] + (bomb if content.endswith(b"\xff\xd9") else b"")
        assert module.count_scans(io.BytesIO(inside)) == PROGRESSIVE.count(b"\xff\xda") + scans


CODES = ("ENOENT", "ESTALE", "EIO", "EMFILE", "ENOMEM", "EACCES", "ETIMEDOUT")


@pytest.mark.parametrize("error", [*(OSError(getattr(errno, code), code) for code in CODES), MemoryError()])
@pytest.mark.parametrize("place", ["polygrain.sources.decode.opened", "hashlib.file_digest", "PIL.Image.Image.resize"])
def test_decode_all__an_error_of_the_machine_is_no_reason(tmp_path: Path, monkeypatch, error, place) -> None:
    NOISE.save(tmp_path / "a.png")
    monkeypatch.setattr(place, Mock(side_effect=error))
    if isinstance(error, OSError) or "opened" not in place:
        with pytest.raises(ValueError, match=r"a\.png cannot be read .*start the run again") as caught:
            list(decode_all(tmp_path, ["a.png"], SIZE))
        assert not isinstance(caught.value, Unreadable)


def test_decode_all__keeps_the_order(tmp_path: Path) -> None:
    names = [f"{i:03d}.png" for i in range(300)]
    for i, name in enumerate(names):
        if i % 7:
            image = Image.new("L", (SIZE, SIZE), i % 256)
            image.putpixel((9, 9), 255 - i % 256)
            image.save(tmp_path / name)
        else:
            (tmp_path / name).write_text("x")
    for i, outcome in enumerate(decode_all(tmp_path, names, SIZE)):
        if i % 7:
            assert outcome.pixels[0, 0, 0] == i % 256
        else:
            assert outcome.startswith("not readable")
    assert i == 299


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
    image.putpixel((39, 19), (200, 0, 0, 255))
    turned = Image.Exif()
    turned[0x0112] = 6
    image.save(tmp_path / "a.png", exif=turned)
    image = upright(io.BytesIO((tmp_path / "a.png").read_bytes()))
    assert (image.size, image.mode, image.getpixel((5, 5))) == ((20, 40), "RGB", (255, 255, 255))
