"""Squares stored as JPEG or WebP, one behind the other in shards, and decoded as they are read.

The layout is Zarr's own sharding: coded squares, each followed by its CRC-32C, then an index of offsets. The metadata
name the codec of `square_codec.py`, so Zarr itself reads such an array where that module is imported. Pillow codes and
decodes without the interpreter lock, so threads are enough.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from polygrain.store.reading import reading

Format = Literal["webp", "jpeg"]
NAME = "polygrain.square"
CRC = 4  # bytes
ENTRY = 16  # bytes of the index for each square
# WebP's default method, 4, takes twice the time and saves one percent of the bytes.
OPTIONS = {"webp": {"method": 2}, "jpeg": {}}
SHARE = 8  # of a photograph's bytes one in so many is left, about, in quality 90
FEW = 8  # rows that are read faster than threads start


class Coding(NamedTuple):
    """Format and Pillow's quality, 1 to 100, of coded squares."""

    format: Format
    quality: int

    def estimate(self, side: int) -> int:
        """About how many bytes a square photograph takes with its entry in the index."""
        return side * side * 3 // SHARE + CRC + ENTRY


def encode(square: UInt8[np.ndarray, "y x 3"], coding: Coding) -> bytes:
    """The square as a file of the format, followed by its CRC-32C."""
    sink = BytesIO()
    Image.fromarray(square).save(sink, coding.format, quality=coding.quality, **OPTIONS[coding.format])
    return with_crc(sink.getvalue())


def decode(content: bytes, shape: tuple[int, ...], format: Format) -> UInt8[np.ndarray, "y x 3"]:
    """The square of `encode`; ValueError if the bytes are anything else. The size is checked before decoding."""
    body = content[:-CRC]
    if with_crc(body) != content:
        raise ValueError("it does not match its checksum")
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
    cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # torchrun's processes share them
    parts = np.array_split(np.arange(count), max(1, cores))
    with ThreadPoolExecutor(len(parts), "squares") as pool:
        for _ in pool.map(lambda part: [work(i) for i in part.tolist()], parts):
            pass


def encode_all(squares: UInt8[np.ndarray, "image y x 3"], coding: Coding) -> list[bytes]:
    """`encode` for each square."""
    codes = [b""] * len(squares)

    def work(i: int) -> None:
        codes[i] = encode(squares[i], coding)

    in_threads(work, len(squares))
    return codes


def shard(codes: list[bytes], shard_rows: int) -> bytes:
    """One shard: the coded squares and their index; entries without a square are marked as Zarr marks them."""
    lengths = np.array([len(code) for code in codes], np.uint64)
    index = np.full((shard_rows, 2), 2**64 - 1, "<u8")
    index[: len(codes), 0] = np.cumsum(lengths) - lengths
    index[: len(codes), 1] = lengths
    return b"".join(codes) + with_crc(index.tobytes())


class CodedShard:
    """The rows of one shard file, decoded on demand: `shard[row]` is a square.

    ValueError for a damaged square names the shard, the row and the remedy.
    """

    def __init__(
        self, file: Path, rows: int, shard_rows: int, shape: tuple[int, ...], format: Format, name: str, remedy: str
    ) -> None:
        self.shape, self.format, self.name, self.remedy = tuple(shape), format, name, remedy
        self.content = np.memmap(file, np.uint8, "r")
        size = self.content.size - ENTRY * shard_rows - CRC
        if size < 0:
            raise ValueError(f"it has {self.content.size} bytes")
        starts, lengths = np.frombuffer(self.content[size:-CRC].tobytes(), "<u8").reshape(shard_rows, 2)[:rows].T
        self.places = np.concatenate([[np.uint64(0)], np.cumsum(lengths)])
        if np.any(lengths > size) or np.any(starts != self.places[:-1]) or self.places[-1] != size:
            raise ValueError("its squares do not lie one behind the other")

    def __len__(self) -> int:
        return len(self.places) - 1

    def __getitem__(self, row: int) -> UInt8[np.ndarray, "y x 3"]:
        start, stop = self.places[row : row + 2].tolist()
        with reading(f"{self.name}, row {row}", self.remedy):
            return decode(self.content[start:stop].tobytes(), self.shape, self.format)
