"""Image files of unknown origin, decoded within bounds on bytes and pixels."""

import errno
import hashlib
import os
import re
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, JpegImagePlugin, TiffImagePlugin, UnidentifiedImageError

from polygrain.compute.cores import cores
from polygrain.store.colours import on_white
from polygrain.store.rectangle import Shape, Unreadable, rectangle

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "HEIF", "JPEG2000", "PPM")
# Their decoders turn the image; EXIF in them still says that it is to be turned.
UPRIGHT = ("TIFF", "HEIF")
TURNED = (5, 6, 7, 8)
BLOCK = 256
MOST_BYTES = 512 * 2**20  # of a file
MOST_PIXELS = 89_000_000  # that are decoded
# Of a progressive JPEG: cameras and editors write about ten, and each takes the time of a whole image.
MOST_SCANS = 100
# Of an animation that begins with blank ones.
MOST_FRAMES = 100
# The sum of the deviations of the three channels: a photograph has 150, and a tenth of that where it begins to fade in.
FAINT = 24
# Of a segment of a JPEG, which has a length: not of its beginning, a restart, or a byte of coded data.
MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")
# Over all threads: a pixel takes up to 27 bytes while it is decoded.
MOST_PIXELS_AT_ONCE = 128 * 10**6

# Pillow opens some deep grey TIFFs only where black is 0; `on_white` turns those whose white is.
for (order, white, *kind), modes in [*TiffImagePlugin.OPEN_INFO.items()]:
    if white == 1 and modes[0].startswith(("I", "F")):
        TiffImagePlugin.OPEN_INFO.setdefault((order, 0, *kind), modes)  # type: ignore[arg-type]


class Picture(NamedTuple):
    """An RGB image as it is stored, with the upright size of the original, its length in bytes and their SHA-256."""

    pixels: UInt8[np.ndarray, "y x 3"]
    width: int
    height: int
    bytes: int
    sha256: str

    @property
    def shown(self) -> str:
        """A hash of the pixels: files of other bytes may show the same."""
        return hashlib.blake2b(str(self.pixels.shape).encode() + self.pixels.tobytes(), digest_size=16).hexdigest()

    def copied(self, first: dict[str, tuple[str, str]]) -> str | None:
        """Why it is left out if it is one of the pictures so far, {shown: (path, SHA-256)}; None where it is none."""
        path, sha256 = first.get(self.shown, ("", ""))
        return f"{'duplicate of' if sha256 == self.sha256 else 'same picture as'} {path}" if path else None


class Allowance:
    """Pixels that all threads may decode at once; an image that is larger than that is decoded alone."""

    def __init__(self, pixels: int) -> None:
        self.pixels, self.taken, self.changed = pixels, 0, threading.Condition()

    @contextmanager
    def take(self, pixels: int) -> Iterator[None]:
        """Waits until `pixels` pixels are free, and holds them for the block."""
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


def decode_all(
    root: Path, paths: list[str], size: int, shape: Shape = "crop", blank: bool = False
) -> Iterator[Picture | str]:
    """`decode` for each path in turn, or the reason why there is none; one block of them is in memory at a time."""

    def attempt(path: str) -> Picture | str:
        try:
            return decode(root / path, size, shape, blank)
        except Unreadable as reason:
            return str(reason)

    # Pillow decodes and scales without the interpreter lock, so threads are enough.
    with ThreadPoolExecutor(cores()) as pool:
        for start in range(0, len(paths), BLOCK):
            yield from pool.map(attempt, paths[start : start + BLOCK])


def decode(file: Path, size: int, shape: Shape = "crop", blank: bool = False) -> Picture:
    """The first frame of an image file, or another if that is blank, as a `rectangle` of this shorter side, px.

    Raises Unreadable with the reason, for more than `MOST_PIXELS` before anything is decoded, and for one colour only
    unless `blank` allows it; another ValueError where the machine cannot read the file.
    """
    with reading(file), opened(file) as stream:
        return picture(stream, size, shape, blank)


@contextmanager
def reading(name: Path | str) -> Iterator[None]:
    """A block that reads an image: an error of the machine in it becomes ValueError, which is not Unreadable."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}); mend that, and start the run again") from error


def picture(stream: BufferedIOBase, size: int, shape: Shape = "crop", blank: bool = False) -> Picture:
    """`decode` for the bytes of a file; OSError where the machine cannot read them."""
    with decoding():
        length = stream.seek(0, 2)
        if not 0 < length <= MOST_BYTES:
            raise Unreadable(f"{length:,} bytes, at most {MOST_BYTES:,} are read" if length else "empty file")
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        with bounded(stream) as (image, (width, height)):
            # libjpeg halves a large photograph several times while decoding; twice the side is left for Lanczos.
            image.draft(None, (2 * size, 2 * size))
            # A progressive JPEG keeps the coefficients of all pixels.
            with allowance.take(width * height if image.info.get("progressive") else image.width * image.height):
                if image.format not in UPRIGHT and image.getexif().get(ExifTags.Base.Orientation) in TURNED:
                    width, height = height, width
                pixels = rectangle(image, size, shape) if blank else shown(image, size, shape)
                return Picture(pixels, width, height, length, digest)


def shown(image: Image.Image, size: int, shape: Shape = "crop") -> UInt8[np.ndarray, "y x 3"]:
    """`rectangle` of an opened image or, where that is of one colour, of another frame; Unreadable if all are."""
    return np.asarray(first_shown(Image.fromarray(rectangle(frame, size, shape)) for frame in frames(image)))


def upright(stream: BufferedIOBase, side: int | None = None) -> Image.Image:
    """The whole image of a file's bytes, upright, in RGB, on white; refused as `picture` refuses.

    Where its sides would be scaled to `side` px or less, a smaller one may be decoded.
    """
    with decoding(), bounded(stream) as (image, _), allowance.take(image.width * image.height):
        if side:
            image.draft(None, (side, side))
        return first_shown(map(on_white, frames(image)))


def frames(image: Image.Image) -> Iterator[Image.Image]:
    """The image at its first frame, then at each further one of its size."""
    yield image
    if image.format == "HEIF":  # its primary picture; the others are no frames
        return
    size = image.size
    for number in range(1, min(getattr(image, "n_frames", 1), MOST_FRAMES)):
        image.seek(number)
        if image.size == size:
            yield image


def first_shown(views: Iterator[Image.Image]) -> Image.Image:
    """The first view in RGB, or the most varied one where it is nearly of one colour; Unreadable if all are of one."""

    def contrast(view: Image.Image) -> float:
        return float(np.asarray(view.resize((32, 32), Image.Resampling.BOX)).std((0, 1)).sum())

    first = next(views)
    view = first if contrast(first) > FAINT else max(chain([first], views), key=contrast)
    if all(low == high for low, high in view.getextrema()):  # type: ignore[misc]
        raise Unreadable("shows one colour only")
    return view


@contextmanager
def bounded(stream: BufferedIOBase) -> Iterator[tuple[Image.Image, tuple[int, int]]]:
    """An image opened by its header, which is within the bounds on pixels and scans, and its whole size.

    A larger JPEG is decoded at a quarter of its sides, unless its decoder keeps the coefficients of all pixels.
    """
    with headed(stream) as image:
        width, height = image.size
        if width * height > MOST_PIXELS and image.format in ("JPEG", "MPO") and count_scans(stream) == 1:
            image.draft(None, (width // 4, height // 4))
        if image.width * image.height > MOST_PIXELS:
            raise Unreadable(f"{width} x {height} pixels, at most {MOST_PIXELS} are decoded")
        if image.info.get("progressive") and (scans := count_scans(stream)) > MOST_SCANS:
            raise Unreadable(f"a progressive JPEG of {scans} scans, at most {MOST_SCANS} are decoded")
        yield image, (width, height)


def headed(stream: BufferedIOBase) -> Image.Image:
    """An image opened by its header, of any number of pixels if it is a JPEG."""
    know_heif()
    stream.seek(0)
    # The bound in `Image.open` does not know that libjpeg scales while it decodes.
    is_jpeg = stream.read(3) == b"\xff\xd8\xff"
    stream.seek(0)
    try:
        return JpegImagePlugin.jpeg_factory(stream) if is_jpeg else Image.open(stream, formats=FORMATS)  # type: ignore[arg-type]
    except MemoryError:  # of a header, which is small in any image
        raise Unreadable("cannot be decoded: its header names more bytes than there are") from None


@cache
def know_heif() -> None:
    """Lets Pillow open HEIF: the whole image itself, never a preview, in one thread of those that decode."""
    import pillow_heif  # 30 ms, which who decodes nothing need not wait for

    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)


def sides_of(stream: BufferedIOBase) -> tuple[int, int]:
    """The shorter and the longer side of an image, by its header alone; zeros where it has none."""
    try:
        with decoding(), headed(stream) as image:
            return min(image.size), max(image.size)
    except Unreadable:
        return 0, 0


def count_scans(stream: BufferedIOBase) -> int:
    """The scans of a JPEG itself: not of thumbnails in its metadata, nor of bytes behind its end."""
    stream.seek(0)
    content, place, scans = stream.read(), 0, 0
    while (found := MARKER.search(content, place)) and found[1] != b"\xd9":
        scans += found[1] == b"\xda"
        place = found.end() + int.from_bytes(content[found.end() : found.end() + 2])
    return scans


@contextmanager
def opened(file: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a regular file; a pipe would be waited for."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise Unreadable("not a regular file")
    with file.open("rb") as stream:
        yield stream


@contextmanager
def decoding() -> Iterator[None]:
    """A block that decodes: an error in it becomes Unreadable with the reason, one of the machine stays an OSError."""
    try:
        yield
    except (Unreadable, ImportError):
        raise
    except MemoryError as error:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
    except UnidentifiedImageError:
        # Pillow's own message names the stream, which differs from run to run.
        raise Unreadable(f"not readable as {', '.join(FORMATS)}") from None
    except Exception as error:
        # Damaged bytes may send a reader to a place before the file: that is EINVAL.
        if getattr(error, "errno", None) not in (None, errno.EINVAL):
            raise
        # Pillow raises a dozen types on damaged bytes, and none of them may end the run.
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        raise Unreadable(f"cannot be decoded: {kind}{' '.join(str(error).split())}") from error
