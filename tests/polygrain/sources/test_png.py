import io

import numpy as np
import pytest
from PIL import Image

from polygrain.sources.png import require_whole
from polygrain.store.square import Unreadable


def drawn(last: int) -> bytes:
    """A PNG whose last row is of this grey."""
    pixels = np.full((9, 8), 200, np.uint8)
    pixels[-1] = last
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("last", [0, 7])
def test_require_whole__takes_a_whole_one(last):
    stream = io.BytesIO(drawn(last))
    require_whole(Image.open(stream), stream)


def test_require_whole__one_byte_of_the_checksum_is_enough():
    content = bytearray(drawn(7))
    content[content.find(b"IEND") - 5] ^= 1  # the last byte of the pixels' checksum, which Pillow does not look at
    stream = io.BytesIO(bytes(content))
    Image.open(io.BytesIO(bytes(content))).load()
    with pytest.raises(Unreadable, match="do not match their checksum"):
        require_whole(Image.open(stream), stream)
