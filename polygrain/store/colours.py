"""An image as it looks: upright, in 8-bit RGB, on a ground that shows it."""

import numpy as np
from PIL import ExifTags, Image, ImageOps, ImageStat

# Grey values of 16 bits in a range below it would have 64 of 256 levels left, or fewer.
NARROW = 2**14
# A mean grey value: what is lighter cannot be seen on white.
LIGHT = 235


def on_white(image: Image.Image) -> Image.Image:
    """An opened image, upright, in 8-bit RGB; transparency lies on white, or on grey where white would hide the rest.

    Grey values of 16 bits are scaled; those in a narrow range, and of other depths, are spread over their own range.
    """
    is_negative = getattr(image, "tag_v2", {}).get(ExifTags.Base.PhotometricInterpretation) == 0
    image = ImageOps.exif_transpose(image)
    if image.mode == "F" or image.mode.startswith("I"):
        image = in_8_bits(image, is_negative)
    if image.has_transparency_data:
        layer = image if image.mode == "RGBA" else image.convert("RGBA")  # a copy may take hundreds of MB
        mean = min(ImageStat.Stat(layer, layer.getchannel("A")).mean[:3])
        ground = Image.new("RGBA", layer.size, "grey" if mean > LIGHT else "white")
        return Image.alpha_composite(ground, layer).convert("RGB")
    return image.convert("RGB")


def in_8_bits(image: Image.Image, is_negative: bool) -> Image.Image:
    """An image of one band of more bits, in 8; transparent where it says so, and where a value is no finite number.

    `is_negative`: white is 0, which Pillow leaves so.
    """
    values = np.array(image, np.float64)
    values[(values == image.info.get("transparency", np.nan)) | ~np.isfinite(values)] = np.nan
    if is_negative:
        np.subtract(2**16 - 1, values, out=values)
    low, high = np.fmin.reduce(values, None), np.fmax.reduce(values, None)
    if image.mode != "F" and low >= 0 and high < 2**16 and not 0 < high - low < NARROW:
        low, high = 0, 2**16 - 1
    values -= low
    values *= 255 / ((high - low) or 1)
    shown = ~np.isnan(values)
    grey = Image.fromarray(np.nan_to_num(np.rint(values, out=values), copy=False).astype(np.uint8))
    return grey if shown.all() else Image.merge("LA", (grey, Image.fromarray(shown.astype(np.uint8) * 255)))
