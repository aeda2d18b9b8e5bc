"""Image files of unknown origin, decoded within bounds on bytes and pixels."""

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, TiffImagePlugin, UnidentifiedImageError

from polygrain.store.square import Shape, Unreadable, on_white, square

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "JPEG2000", "PPM")
TURNED = (5, 6, 7, 8)
BLOCK = 256
MOST_BYTES = 512 * 2**20  # of a file
MOST_PIXELS = 89_000_000
# Of a progressive JPEG: cameras and editors write about ten, and each takes the time of a whole image.
MOST_SCANS = 100
# Over all threads: a pixel takes up to 27 bytes while it is decoded.
MOST_PIXELS_AT_ONCE = 128 * 10**6


class Picture(NamedTuple):
    """A square RGB image, with the upright size of the original, its length in bytes and their SHA-256."""

    pixels: UInt8[np.ndarray, "size size 3"]
    width: int
    height: int
    bytes: int
    sha256: str


class Allowance:
    """Pixels that all threads may decode at once; an image that is larger than that is decoded alone."""

    def __init__(self, pixels: int) -> None:
        self.pixels, self.taken, self.changed = pixels, 0, threading.Condition()

    @contextmanager
    def take(self, pixels: int) -> Iterator[None]:
        """Waits until so many pixels are free, and holds them for the block."""
        with self.changed:
            self.changed.wait_for(lambda: not self.taken or self.taken + pixels <= self.pixels)
            self.taken += pixels
        try:
            yield
        finally:
            with self.changed:
                self.taken -= pixels
                self.changed.notify_all()


allowance = Allowance(MOST_PIXELS_AT_ONCE)


def decode_all(root: Path, paths: list[str], size: int, shape: Shape = "crop") -> Iterator[Picture | str]:
    """A picture, or the reason why there is none, for each path in turn; one block of them is in memory at a time."""

    def attempt(path: str) -> Picture | str:
        try:
            return decode(root / path, size, shape)
        except Unreadable as reason:
            return str(reason)

    # Pillow decodes and scales without the interpreter lock, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(paths), BLOCK):
            yield from pool.map(attempt, paths[start : start + BLOCK])


def decode(file: Path, size: int, shape: Shape = "crop") -> Picture:
    """The first frame of an image file, upright, as the centre square whose side is scaled to `size` pixels.

    `squash` scales the whole image to that square instead. Transparent parts lie on white. Raises Unreadable with the
    reason, for more than `MOST_PIXELS` before anything is decoded.
    """
    with decoding(), opened(file) as stream:
        return picture(stream, size, shape)


def picture(stream: BufferedIOBase, size: int, shape: Shape = "crop") -> Picture:
    """`decode` for the bytes of a file."""
    with decoding():
        length = stream.seek(0, 2)
        if not 0 < length <= MOST_BYTES:
            raise Unreadable(f"{length:,} bytes, at most {MOST_BYTES:,} are read" if length else "empty file")
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        with bounded(stream) as image:
            width, height = image.size
            if isinstance(image, TiffImagePlugin.TiffImageFile):
                # Pillow gives the size as turned or as stored, depending on its version.
                width, height = (image.tag_v2[tag] for tag in (ExifTags.Base.ImageWidth, ExifTags.Base.ImageLength))
            # libjpeg halves a large photograph several times while decoding; twice the side is left for Lanczos.
            image.draft(None, (2 * size, 2 * size))
            # A progressive JPEG keeps the coefficients of all pixels.
            with allowance.take(width * height if image.info.get("progressive") else image.width * image.height):
                if image.getexif().get(ExifTags.Base.Orientation) in TURNED:
                    width, height = height, width
                return Picture(square(image, size, shape), width, height, length, digest)


def upright(stream: BufferedIOBase) -> Image.Image:
    """The whole first frame of an image file's bytes, upright, in RGB, on white; refused as `decode` refuses."""
    with decoding(), bounded(stream) as image, allowance.take(image.width * image.height):
        return on_white(ImageOps.exif_transpose(image))


@contextmanager
def bounded(stream: BufferedIOBase) -> Iterator[Image.Image]:
    """An image opened by its header, which is within the bounds on pixels and scans."""
    stream.seek(0)
    with Image.open(stream, formats=FORMATS) as image:  # type: ignore[arg-type]
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise Unreadable(f"{width} x {height} pixels, at most {MOST_PIXELS} are decoded")
        if image.info.get("progressive") and (scans := count_scans(stream)) > MOST_SCANS:
            raise Unreadable(f"a progressive JPEG of {scans} scans, at most {MOST_SCANS} are decoded")
        yield image


def count_scans(stream: BufferedIOBase) -> int:
    """The scans of a JPEG; the bytes of their marker do not occur in coded data."""
    place = stream.tell()
    stream.seek(0)
    scans = stream.read().count(b"\xff\xda")
    stream.seek(place)
    return scans


@contextmanager
def opened(file: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a regular file; a pipe would be waited for."""
    if file.exists() and not file.is_file():
        raise Unreadable("not a regular file")
    with file.open("rb") as stream:
        yield stream


@contextmanager
def decoding() -> Iterator[None]:
    """A block that decodes: any error in it becomes Unreadable with the reason."""
    try:
        yield
    except Unreadable:
        raise
    except MemoryError:
        raise Unreadable("too large for the memory of this machine") from None
    except UnidentifiedImageError:
        # Pillow's own message names the stream, which differs from run to run.
        raise Unreadable(f"not readable as {', '.join(FORMATS)}") from None
    except OSError as error:
        raise Unreadable(f"cannot be decoded: {error.strerror or error}") from error
    except Exception as error:
        # Pillow raises a dozen types on damaged bytes, and none of them may end the run.
        raise Unreadable(f"cannot be decoded: {type(error).__name__}: {error}") from error
