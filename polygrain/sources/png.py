"""Whether a PNG is whole: Pillow takes one whose pixels end early or do not match their checksums, and says nothing."""

import struct
import zlib
from io import BufferedIOBase

import numpy as np
from PIL import Image

from polygrain.store.square import Unreadable

SIGNATURE = 8
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# First column and row, and steps, of the seven passes of an interlaced image; of the only one of another.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
WHOLE = ((0, 0, 1, 1),)
BLOCK = 2**16


def require_whole(image: Image.Image, stream: BufferedIOBase) -> None:
    """Raises Unreadable where a PNG, opened from the stream, is damaged or has fewer rows than it says.

    Rows that are missing are black in what Pillow made of it, so only an image that ends in black is counted.
    """
    image.load()
    last = image.crop((0, image.height - 1, image.width, image.height))
    counted = bool(image.info.get("interlace")) or not np.asarray(last).any()
    stream.seek(SIGNATURE)
    inflater, missing = zlib.decompressobj(), 0
    while len(head := stream.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind not in (b"IHDR", b"IDAT"):
            stream.seek(length + 4, 1)
            continue
        body, stored = stream.read(length), stream.read(4)
        if zlib.crc32(body, zlib.crc32(kind)) != int.from_bytes(stored):
            raise Unreadable("cannot be decoded: its pixels do not match their checksum")
        if kind == b"IHDR":
            missing = size(*struct.unpack(">IIBBBBB", body)) if counted else 0
        while kind == b"IDAT" and body and missing > 0:
            missing -= len(inflater.decompress(body, min(BLOCK, missing)))
            body = inflater.unconsumed_tail
    if missing > 0:
        raise Unreadable("cannot be decoded: its pixels end early")


def size(width: int, height: int, depth: int, colour: int, _: int, __: int, interlaced: int) -> int:
    """The bytes of all rows, uncompressed, each behind a byte that names its filter."""
    passes = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in (ADAM7 if interlaced else WHOLE)]
    return sum(rows * (1 + -(-columns * depth * CHANNELS[colour] // 8)) for columns, rows in passes if columns > 0)
