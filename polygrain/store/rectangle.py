"""The part of an image that an encoder sees: upright, in RGB, on a ground that shows it, as a square or a rectangle."""

import functools
import logging
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from polygrain.store.colours import on_white

log = logging.getLogger(__name__)
Shape = Literal["crop", "squash", "whole"]
# Longer side over shorter: up to it the centre square shows all that matters, and costs less.
SQUARISH = 1.4
# Of longer images the middle is taken.
LONGEST = 3
# A rectangle's longer side is a whole number of quarters of its shorter one: few shapes, so that batches are not small.
QUARTERS = 4


class Unreadable(ValueError):
    """An image is left out; the message is the reason, without the file's name."""


def rectangle(image: Image.Image, side: int, shape: Shape = "crop") -> UInt8[np.ndarray, "y x 3"]:
    """An opened image, its shorter side `side` px: the centre square (`crop`), all of it squeezed to one (`squash`), or
    all of it up to 3 to 1, and of a squarish one the centre square (`whole`)."""
    image = on_white(image, side)
    shorter, longer = sorted(image.size)
    if shape == "squash":
        # reducing_gap: a strip, scaled along one axis and then the other, would take gigabytes.
        return np.asarray(image.resize((side, side), Image.Resampling.LANCZOS, reducing_gap=3))
    long = side if shape == "crop" else longer_side(longer / shorter, side)
    if shape == "whole" and longer > LONGEST * shorter:
        say_once(f"of an image longer than {LONGEST} to 1 only the middle part, of {LONGEST} to 1, is used")
    seen = shorter if long == side else min(longer, LONGEST * shorter)
    is_wide = image.width > image.height
    width, height = (seen, shorter) if is_wide else (shorter, seen)
    left, top = (image.width - width) / 2, (image.height - height) / 2
    # Only the visible part is scaled: a strip of 1 x 80,000,000 pixels would take gigabytes.
    box = (left, top, left + width, top + height)
    return np.asarray(image.resize((long, side) if is_wide else (side, long), Image.Resampling.LANCZOS, box))


def longer_side(ratio: float, side: int) -> int:
    """The longer side of the rectangle for an image of this ratio of sides, px; `side` where the square is taken."""
    quarters = round(QUARTERS * min(ratio, LONGEST))
    return side if ratio <= SQUARISH else max(1, round(side * quarters / QUARTERS))


def largest(side: int, shape: Shape) -> tuple[int, int, int]:
    """The shape of an array that holds any picture of this side."""
    most = LONGEST * side if shape == "whole" else side
    return most, most, 3


@functools.cache
def say_once(message: str) -> None:
    log.info(message)
