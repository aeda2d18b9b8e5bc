"""Image files of unknown origin, decoded with every doubt settled before memory is spent on them."""

import hashlib
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from polygrain.sources import png
from polygrain.store.square import Shape, Unreadable, on_white, scale_key, square

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
TURNED = (5, 6, 7, 8)
BLOCK = 256


class Picture(NamedTuple):
    """A square RGB image, with the upright size of the original, its length in bytes and their SHA-256."""

    pixels: UInt8[np.ndarray, "size size 3"]
    width: int
    height: int
    bytes: int
    sha256: str


def decode_all(
    root: Path, paths: list[str], size: int, max_pixels: int, shape: Shape = "crop"
) -> Iterator[Picture | str]:
    """A picture, or the reason why there is none, for each path in turn; one block of them is in memory at a time."""

    def attempt(path: str) -> Picture | str:
        try:
            return decode(root / path, size, max_pixels, shape)
        except Unreadable as reason:
            return str(reason)

    # Pillow decodes and scales without holding the interpreter lock, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(paths), BLOCK):
            yield from pool.map(attempt, paths[start : start + BLOCK])


def decode(file: Path, size: int, max_pixels: int, shape: Shape = "crop") -> Picture:
    """The first frame of an image file, upright, as the centre square whose side is scaled to `size` pixels.

    `squash` scales the whole image to that square instead. Transparent parts lie on white. `max_pixels` is compared
    with the header, before anything is decoded.
    Raises Unreadable for whatever the file is not, or lacks.
    """
    with doubted(), opened(file) as stream:
        return picture(stream, size, max_pixels, shape)


def picture(stream: BufferedIOBase, size: int, max_pixels: int, shape: Shape = "crop") -> Picture:
    """`decode` for the bytes of a file."""
    with doubted():
        length = stream.seek(0, 2)
        if length == 0:
            raise Unreadable("empty file")
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        with Image.open(stream, formats=FORMATS) as image:
            width, height = image.size
            require_few(image, max_pixels)
            if image.format == "TIFF":
                # Pillow gives the size of one as it will be turned, or as it is stored, by version.
                width, height = (image.tag_v2[tag] for tag in (ExifTags.Base.ImageWidth, ExifTags.Base.ImageLength))
            scale_key(image)  # before what may load it
            if image.getexif().get(ExifTags.Base.Orientation) in TURNED:
                width, height = height, width
            # libjpeg halves a large photograph several times while decoding; twice the side is left for Lanczos.
            image.draft(None, (2 * size, 2 * size))
            pixels = square(image, size, shape)
            if image.format == "PNG":
                png.require_whole(image, stream)
            return Picture(pixels, width, height, length, digest)


def upright(stream: BufferedIOBase, max_pixels: int) -> Image.Image:
    """The whole first frame of an image file's bytes, upright, in RGB, on white; refused as `decode` refuses."""
    with doubted(), Image.open(stream, formats=FORMATS) as image:
        require_few(image, max_pixels)
        scale_key(image)
        whole = on_white(ImageOps.exif_transpose(image))
        if image.format == "PNG":
            png.require_whole(image, stream)
        return whole


@contextmanager
def opened(file: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a regular file."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise Unreadable("not a regular file")
    with file.open("rb") as stream:
        yield stream


@contextmanager
def doubted() -> Iterator[None]:
    """A block that decodes: whatever goes wrong in it becomes Unreadable with the reason."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except UnidentifiedImageError:
        # Pillow's own message names the stream, which differs from run to run.
        raise Unreadable(f"not readable as {', '.join(FORMATS)}") from None
    except OSError as error:
        raise Unreadable(f"cannot be decoded: {error.strerror or error}") from error
    except Exception as error:
        # Damaged bytes make Pillow's readers raise a dozen kinds of errors, and none of them may end the run.
        raise Unreadable(f"cannot be decoded: {type(error).__name__}: {error}") from error


def require_few(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise Unreadable(f"{width} x {height} pixels, at most {max_pixels} are decoded")
