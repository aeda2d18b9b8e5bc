"""Pairs of images that look alike to people without being the same, drawn from installed packages.

A character in fonts of two families, and a photographed place beside an edge drawing, a poster or a recoloured print of
another view of it. Each image is drawn from a generator seeded by its own name.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from sklearn.datasets import load_sample_images

from polygrain.sources.installed import CHARACTERS, WINDOW, around, detailed, generator, text_fonts, written

FAMILIES = {
    "sans": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique", "cmss10"),
    "serif": ("DejaVuSerif", "DejaVuSerif-Bold", "STIXGeneral", "STIXGeneralBol", "cmr10", "cmb10"),
    "italic": ("DejaVuSerif-Italic", "DejaVuSerif-BoldItalic", "STIXGeneralItalic", "STIXGeneralBolIta", "cmti10"),
    "mono": ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "cmtt10"),
}
FAINTEST = 8.0  # of 255: a weaker gradient is noise, and is not drawn as a full line
Pixels = UInt8[np.ndarray, "size size 3"]


class PicturePair(NamedTuple):
    left: Pixels
    right: Pixels


def edges(pixels: Pixels) -> Pixels:
    """Dark lines on white: the strength of the grey gradient."""
    strength = np.hypot(*np.gradient(pixels.astype(np.float64).mean(2)))
    full = max(float(np.quantile(strength, 0.97)), FAINTEST)
    return grey(255 * (1 - np.clip(strength / full, 0, 1)))


def poster(pixels: Pixels) -> Pixels:
    """Three tones of one ink: paper, half and full."""
    values = pixels.astype(np.float64).mean(2)
    tones = np.digitize(values, np.quantile(values, [0.33, 0.67]))[..., None] / 2
    return np.round(tones * np.array([250.0, 236, 200]) + (1 - tones) * np.array([70.0, 20, 60])).astype(np.uint8)


def recoloured(pixels: Pixels) -> Pixels:
    """Hues a third of the circle further, and light and dark exchanged."""
    return np.ascontiguousarray(255 - pixels[..., [1, 2, 0]])


def grey(values: Float[np.ndarray, "y x"]) -> Pixels:
    return np.repeat(np.round(values).astype(np.uint8)[..., None], 3, 2)


RENDITIONS: dict[str, Callable[[Pixels], Pixels]] = {"edges": edges, "poster": poster, "recoloured": recoloured}


def draw(size: int, per_character: int, places: int) -> dict[str, PicturePair]:
    """{name: pair} of both kinds: `per_character` of each character, each rendition of `places` places a photo."""
    return letters(size, per_character) | photographs(size, places)


def letters(size: int, per_character: int) -> dict[str, PicturePair]:
    """Each character in two fonts of different families."""
    fonts, pairs = text_fonts(4 * size), {}
    for character in CHARACTERS:
        for number in range(per_character):
            name = f"letter-{ord(character):03d}-{number}"
            random = generator(name)
            families = random.permutation(sorted(FAMILIES))[:2]
            left, right = (fonts[random.choice(FAMILIES[family])] for family in families)
            pictures = [written(font, character, size, random) for font in (left, right)]
            pairs[name] = PicturePair(*pictures)
    return pairs


def seen(photo: Image.Image, centre: tuple[float, float], size: int, random: np.random.Generator) -> Pixels:
    """A view of the place, moved and turned (a little, never mirrored), in another light."""
    where = np.array(centre) + random.uniform(-0.06, 0.06, 2) * WINDOW
    view = around(photo, where, WINDOW * random.uniform(0.92, 1.08), size, random, 6)
    pixels = np.asarray(view, np.float64)
    mean = pixels.mean()
    pixels = (pixels - mean) * random.uniform(0.7, 1.2) + mean * random.uniform(0.7, 1.3)
    return np.clip(np.round(pixels * random.uniform(0.9, 1.1, 3)), 0, 255).astype(np.uint8)


def photographs(size: int, places: int) -> dict[str, PicturePair]:
    """A view of each place beside a rendition of another view of it."""
    bunch, pairs = load_sample_images(), {}
    for file, pixels in zip(bunch.filenames, bunch.images, strict=True):
        photo, stem = Image.fromarray(pixels), Path(file).stem
        for (row, column), centre in detailed(pixels, places).items():
            for kind, rendition in RENDITIONS.items():
                name = f"{stem}-{row}-{column}-{kind}"
                random = generator(name)
                left, right = (seen(photo, centre, size, random) for _ in range(2))
                pairs[name] = PicturePair(left, rendition(right))
    return pairs
