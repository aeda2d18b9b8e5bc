"""PNG files whose text is too large or damaged: the pixels can be read without it."""

import struct
import zlib
from io import BufferedIOBase, BytesIO

from PIL import PngImagePlugin

SIGNATURE = b"\x89PNG\r\n\x1a\n"
TEXT = (b"tEXt", b"zTXt", b"iTXt")


def without_bad_text(stream: BufferedIOBase) -> BufferedIOBase:
    """The same bytes, without the chunks of text that Pillow would not read; other formats as they are."""
    stream.seek(0)
    bad, place = [], len(SIGNATURE)
    if stream.read(place) == SIGNATURE:
        while len(head := stream.read(8)) == 8 and head[4:] != b"IEND":
            length, kind = struct.unpack(">I4s", head)
            if kind in TEXT and is_bad(stream, kind, length):
                bad.append(slice(place, place + length + 12))
            place = stream.seek(place + length + 12)
    stream.seek(0)
    if not bad:
        return stream
    content = bytearray(stream.read())
    for chunk in reversed(bad):
        del content[chunk]
    return BytesIO(content)


def is_bad(stream: BufferedIOBase, kind: bytes, length: int) -> bool:
    """Whether the chunk whose content begins here cannot be read: its checksum is wrong, or it unpacks to too much."""
    if length > PngImagePlugin.MAX_TEXT_CHUNK:
        return True
    data, checksum = stream.read(length), stream.read(4)
    if zlib.crc32(kind + data).to_bytes(4, "big") != checksum:
        return True
    try:
        getattr(PngImagePlugin.PngStream(BytesIO(data)), f"chunk_{kind.decode()}")(0, length)
    except Exception:  # whatever Pillow raises here, it would raise for the image
        return True
    return False
