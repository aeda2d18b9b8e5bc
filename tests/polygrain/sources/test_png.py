import io
import zlib

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import MAX_TEXT_CHUNK, PngInfo

from polygrain.sources.decode import decode
from polygrain.sources.png import without_bad_text

PIXELS = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)


def png(key: str, text: str, is_packed: bool = False) -> bytes:
    info, sink = PngInfo(), io.BytesIO()
    info.add_text(key, text, zip=is_packed)
    Image.fromarray(PIXELS).save(sink, "png", pnginfo=info)
    return sink.getvalue()


def damaged(content: bytes) -> bytes:
    place = content.index(b"tEXt") + 6
    return content[:place] + b"?" + content[place + 1 :]


def moved(content: bytes) -> bytes:
    """With the text behind the pixels, where it is only met when they are read."""
    start = content.index(b"tEXt") - 4
    end = start + 12 + int.from_bytes(content[start : start + 4], "big")
    return content[:start] + content[end:-12] + content[start:end] + content[-12:]


LARGE = "x" * (MAX_TEXT_CHUNK + 1)


@pytest.mark.parametrize(
    "content",
    [png("a", LARGE), png("a", LARGE, True), damaged(png("a", "hello")), damaged(moved(png("a", "hello")))],
)
def test_decode__a_png_without_its_bad_text(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    picture = decode(tmp_path / "a.png", 16, 10**6)
    np.testing.assert_array_equal(picture.pixels, PIXELS)
    assert picture.bytes == len(content)


def test_without_bad_text__good_text_stays():
    stream = io.BytesIO(png("a", "hello", True))
    assert without_bad_text(stream) is stream and stream.tell() == 0
    both = png("a", "hello")
    start = both.index(b"IDAT") - 4
    text = b"tEXtb\0bad"
    both = (
        both[:start]
        + len(text[4:]).to_bytes(4, "big")
        + text
        + (zlib.crc32(text) ^ 1).to_bytes(4, "big")
        + both[start:]
    )
    assert Image.open(without_bad_text(io.BytesIO(both))).info["a"] == "hello"
