"""An image as it looks: upright, in 8-bit sRGB, on a ground that shows it."""

import logging
from functools import cache, lru_cache
from io import BytesIO

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageOps, ImageStat

log = logging.getLogger(__name__)

# Grey values of 16 bits in a range below it would have 64 of 256 levels left, or fewer.
NARROW = 2**14
# A mean grey value: lighter images cannot be seen on white.
LIGHT = 235
# Of a colour profile: those of printing machines have up to three million.
MOST_BYTES = 4_000_000
# Levels by which a profile may differ from sRGB and still say the same: those of cameras are rounded.
SAME = 2


def on_white(image: Image.Image, side: int | None = None) -> Image.Image:
    """An opened image, upright, in 8-bit sRGB by its colour profile; transparency lies on white, or on grey where white
    would hide the rest.

    Grey values of 16 bits are scaled; those in a narrow range, and of other depths, are spread over their own range.
    `side` lets what a profile changes be scaled down first, to three times that side or more.
    """
    is_negative = getattr(image, "tag_v2", {}).get(ExifTags.Base.PhotometricInterpretation) == 0
    image = ImageOps.exif_transpose(image)
    if image.mode == "F" or image.mode.startswith("I"):
        image = in_8_bits(image, is_negative)
    image = in_srgb(image, side)
    if image.has_transparency_data:
        layer = image if image.mode == "RGBA" else image.convert("RGBA")  # a copy may take hundreds of MB
        mean = min(ImageStat.Stat(layer, layer.getchannel("A")).mean[:3])
        ground = Image.new("RGBA", layer.size, "grey" if mean > LIGHT else "white")
        return Image.alpha_composite(ground, layer).convert("RGB")
    return image.convert("RGB")


def in_srgb(image: Image.Image, side: int | None) -> Image.Image:
    """An image by its colour profile, where that says something else than sRGB; grey values stay as they are."""
    mode = image.mode if image.mode in ("CMYK", "LAB") else "RGBA" if image.has_transparency_data else "RGB"
    # Lab says by itself what its numbers mean.
    profile = b"" if mode == "LAB" else image.info.get("icc_profile")
    if image.mode in ("1", "L", "LA", "La") or not isinstance(profile, bytes):
        return image
    if (transform := to_srgb(profile, mode)) is None:
        return image
    image = image if image.mode == mode else image.convert(mode)
    # A dozen megapixels take half a second.
    times = min(image.size) // (3 * side) if side else 1
    return transform.apply(image.reduce(times) if times > 1 else image)


@lru_cache(16)
def to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """The transform of a mode and profile into sRGB; None for sRGB itself and for an ignored profile."""
    if len(profile) >= MOST_BYTES:
        return ignore("has 4 MB or more")
    relative, flags = ImageCms.Intent.RELATIVE_COLORIMETRIC, ImageCms.Flags.BLACKPOINTCOMPENSATION
    shown = mode if mode == "RGBA" else "RGB"
    try:
        source = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB") if mode == "LAB" else BytesIO(profile))
        if source.profile.xcolor_space.strip().upper() != mode.removesuffix("A"):
            return ignore("is for another kind of colours")
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, shown, relative, flags)
    except (OSError, ValueError, ImageCms.PyCMSError):
        return ignore("is damaged")
    if mode == shown:
        levels = np.stack(np.meshgrid(*[np.arange(0, 256, 51)] * 3), -1).astype(np.uint8).reshape(1, -1, 3)
        colours = Image.fromarray(levels).convert(mode)
        if np.abs(np.asarray(transform.apply(colours), int) - np.asarray(colours)).max() <= SAME:
            return None
    return transform


@cache
def ignore(reason: str) -> None:
    """Says once that there are colour profiles which are ignored for a reason."""
    log.warning("the colour profile of an image %s: such profiles are ignored", reason)


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
