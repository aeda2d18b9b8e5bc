"""Pictures of a page, as data addresses."""

import base64
import io

import numpy as np
from jaxtyping import UInt8
from PIL import Image


def pictured(pixels: UInt8[np.ndarray, "y x 3"], size: int) -> str:
    """An image as a data address: JPEG, its longer side at most `size` pixels."""
    image = Image.fromarray(pixels)
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
