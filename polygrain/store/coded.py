"""Pictures stored as files of an image format, one behind the other in shards, and decoded as they are read.

The layout is Zarr's own sharding: coded pictures, each followed by its CRC-32C, then an index of offsets. The metadata
name the codec of `picture_codec.py`, so Zarr itself reads such an array where that module is imported. Where pictures
are rectangles of several shapes, these stand in front of the index, and Zarr shows each in the corner of a larger one.
Pillow codes and decodes without the interpreter lock, so threads are enough.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from polygrain.compute.cores import cores
from polygrain.store.reading import reading

Format = Literal["raw", "webp", "jpeg"]
NAME = "polygrain.picture"
CRC = 4  # bytes
ENTRY = 16  # bytes of the index for each picture
SHAPE = 4  # bytes of the height and width of each, where they differ
# WebP's default method, 4, takes twice the time and saves one percent of the bytes.
OPTIONS: dict[str, dict[str, int]] = {"raw": {}, "webp": {"method": 2}, "jpeg": {}}
SHARE = 8  # a photograph shrinks to about an eighth in quality 90
FEW = 8  # rows that are read faster than threads start


class Coding(NamedTuple):
    """Format and Pillow's quality, 1 to 100, of coded pictures; raw ones are PPM files.

    `side`: the shorter side of rectangles, px; None where all are squares of one side.
    """

    format: Format
    quality: int = 100
    side: int | None = None

    def estimate(self, side: int) -> int:
        """About how many bytes a square photograph takes with its entry in the index."""
        return side * side * 3 // (1 if self.format == "raw" else SHARE) + CRC + ENTRY


def encode(picture: UInt8[np.ndarray, "y x 3"], coding: Coding) -> bytes:
    """The picture as a file of the format, followed by its CRC-32C."""
    if coding.format == "raw":
        return with_crc(header(picture.shape) + picture.tobytes())
    sink = BytesIO()
    Image.fromarray(picture).save(sink, coding.format, quality=coding.quality, **OPTIONS[coding.format])
    return with_crc(sink.getvalue())


def header(shape: tuple[int, ...]) -> bytes:
    """The beginning of a PPM file."""
    return b"P6 %d %d 255\n" % (shape[1], shape[0])


def decode(content: bytes, shape: tuple[int, ...], format: Format) -> UInt8[np.ndarray, "y x 3"]:
    """The picture of `encode`; ValueError if the bytes are anything else. The size is checked before decoding."""
    body = content[:-CRC]
    if with_crc(body) != content:
        raise ValueError("it does not match its checksum")
    if format == "raw":
        beginning = header(shape)
        if not body.startswith(beginning) or len(body) != len(beginning) + math.prod(shape):
            raise ValueError(f"it is no picture of {shape[1]} x {shape[0]} px")
        return np.frombuffer(body, np.uint8, offset=len(beginning)).reshape(shape)
    try:
        image = Image.open(BytesIO(body), formats=(format,))
        if (image.height, image.width, len(image.getbands())) != tuple(shape) or image.mode != "RGB":
            raise ValueError(f"it is {image.mode} of {image.width} x {image.height} px")
        return np.asarray(image)
    except ValueError:
        raise
    except Exception as error:  # Pillow raises a dozen types on damaged bytes
        raise ValueError(f"it cannot be decoded as {format}") from error


def with_crc(body: bytes) -> bytes:
    import google_crc32c  # of a project: who only embeds and searches needs neither it nor Zarr

    return body + google_crc32c.value(body).to_bytes(CRC, "little")


def coding_of(codecs: list[dict[str, Any]]) -> Coding | None:
    """The coding that zarr.json names for its chunks; None for another codec."""
    if [codec["name"] for codec in codecs] != [NAME, "crc32c"]:
        return None
    coding = Coding(**codecs[0]["configuration"])
    return coding if coding.format in OPTIONS else None


def in_threads(work: Callable[[int], object], count: int) -> None:
    """Calls `work` for 0 to `count` - 1, in threads where that pays; the first error is raised.

    The threads are new each time: a pool would not survive a fork.
    """
    if count <= FEW:
        for i in range(count):
            work(i)
        return
    each = cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # torchrun's processes share them
    parts = np.array_split(np.arange(count), max(1, each))
    with ThreadPoolExecutor(len(parts), "pictures") as pool:
        for _ in pool.map(lambda part: [work(i) for i in part.tolist()], parts):
            pass


def encode_all(pictures: Sequence[np.ndarray] | np.ndarray, coding: Coding) -> list[bytes]:
    """`encode` for each picture."""
    codes = [b""] * len(pictures)

    def work(i: int) -> None:
        codes[i] = encode(pictures[i], coding)

    in_threads(work, len(pictures))
    return codes


def shard(codes: list[bytes], shard_rows: int, shapes: bytes = b"") -> bytes:
    """One shard: the coded pictures, their shapes, and the index; entries without one are marked as Zarr marks them."""
    lengths = np.array([len(code) for code in codes], np.uint64)
    index = np.full((shard_rows, 2), 2**64 - 1, "<u8")
    index[: len(codes), 0] = np.cumsum(lengths) - lengths
    index[: len(codes), 1] = lengths
    return b"".join(codes) + shapes + with_crc(index.tobytes())


class CodedShard:
    """The rows of one shard file, decoded on demand: `shard[row]` is a picture, `shapes` are heights and widths.

    `side`: of squares, and the shorter one of rectangles. ValueError for a damaged picture names the shard, the row and
    the remedy.
    """

    def __init__(
        self, file: Path, rows: int, shard_rows: int, side: int, coding: Coding, name: str, remedy: str
    ) -> None:
        self.format, self.name, self.remedy = coding.format, name, remedy
        self.content = np.memmap(file, np.uint8, "r")
        end = self.content.size - ENTRY * shard_rows - CRC
        size = end - SHAPE * rows if coding.side else end
        if size < 0:
            raise ValueError(f"it has {self.content.size} bytes")
        self.shapes = np.full((rows, 2), side)
        if coding.side:
            self.shapes = np.frombuffer(self.content[size:end].tobytes(), "<u2").reshape(rows, 2).astype(np.int64)
            if rows and (self.shapes.min(1) != side).any():
                raise ValueError("its pictures have other sides")
        starts, lengths = np.frombuffer(self.content[end:-CRC].tobytes(), "<u8").reshape(shard_rows, 2)[:rows].T
        self.places = np.concatenate([[np.uint64(0)], np.cumsum(lengths)])
        if np.any(lengths > size) or np.any(starts != self.places[:-1]) or self.places[-1] != size:
            raise ValueError("its pictures do not lie one behind the other")

    def __len__(self) -> int:
        return len(self.places) - 1

    def __getitem__(self, row: int) -> UInt8[np.ndarray, "y x 3"]:
        start, stop = self.places[row : row + 2].tolist()
        with reading(f"{self.name}, row {row}", self.remedy):
            return decode(self.content[start:stop].tobytes(), (*self.shapes[row].tolist(), 3), self.format)
