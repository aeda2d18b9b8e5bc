"""An image as the square that is stored: upright, in RGB, on a ground that shows it."""

from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from polygrain.store.colours import on_white

Shape = Literal["crop", "squash"]


class Unreadable(ValueError):
    """An image is left out; the message is the reason, without the file's name."""


def square(image: Image.Image, size: int, shape: Shape = "crop") -> UInt8[np.ndarray, "size size 3"]:
    """The centre square of an opened image, upright, in RGB, scaled to `size`; `squash`: the whole image, squeezed."""
    image = on_white(image)
    if shape == "squash":
        # reducing_gap: a strip, scaled along one axis and then the other, would take gigabytes.
        return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS, reducing_gap=3))
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    # Only the square is scaled: a strip of 1 x 80,000,000 pixels would take gigabytes.
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS, box))
