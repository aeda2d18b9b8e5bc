"""An image as the square that is stored: upright, in RGB, on white."""

from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

Shape = Literal["crop", "squash"]


class Unreadable(ValueError):
    """An image is left out; the message is the reason, without the file's name."""


def square(image: Image.Image, size: int, shape: Shape = "crop") -> UInt8[np.ndarray, "size size 3"]:
    """The centre square of an opened image, upright, in RGB, scaled to `size`; `squash`: the whole image, squeezed."""
    image = on_white(ImageOps.exif_transpose(image))
    if shape == "squash":
        # reducing_gap: a strip, scaled along one axis and then the other, would take gigabytes.
        return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS, reducing_gap=3))
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    # Only the square is scaled: a strip of 1 x 80,000,000 pixels would take gigabytes.
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS, box))


def on_white(image: Image.Image) -> Image.Image:
    """The image in 8-bit RGB: 16-bit values scaled, transparency laid over white."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int32)
        if values.min() < 0 or values.max() > 65535:
            raise Unreadable(f"values {values.min()} to {values.max()}; convert it to 8 or 16 bits")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise Unreadable("floating-point pixels; convert it to 8 or 16 bits")
    if image.has_transparency_data:
        layer = image if image.mode == "RGBA" else image.convert("RGBA")  # a copy may take hundreds of MB
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
