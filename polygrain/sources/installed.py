"""Three retrieval tasks drawn from installed packages: real images without a download.

Every random choice is drawn from a generator seeded by the image's own path. So an image does not depend on how many
others are asked for.
"""

import hashlib
import string
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont, ImageOps
from sklearn.datasets import load_digits, load_sample_images

from polygrain.sources.decode import Picture
from polygrain.sources.kind import Ask, Candidates, Kind, by_class

# Capitals that are large small letters are left out: nobody can tell them apart once the size varies.
CAPITALS = "".join(letter for letter in string.ascii_uppercase if letter not in "CKOPSUVWXZ")
CHARACTERS = string.digits + CAPITALS + string.ascii_lowercase
# These have a glyph at each letter's code, but another one: mathematical signs, or old-style figures.
SYMBOLS = ("cmex10", "cmsy10", "cmmi10")
WINDOW = 60
GRID = (7, 10)

Pictures = dict[tuple[str, str], Picture]
"""{(class name, path): picture}"""


def digits(size: int, per_class: int) -> Pictures:
    """Scikit-learn's handwritten digits, 8 x 8 grey values scaled up, written as the glyphs are; `per_class` of each.

    The registered scans are too easy (raw pixels reach 68 % R-Precision), so each is moved and inked again.
    """
    bunch, pictures = load_digits(), {}
    for label in range(10):
        for row in np.flatnonzero(bunch.target == label)[:per_class]:
            path = f"{label}/{row:04d}"
            grey = Image.fromarray(np.round(bunch.images[row] * (255 / 16)).astype(np.uint8))
            sheet = ImageOps.expand(grey.resize((3 * size, 3 * size), Image.Resampling.BICUBIC), size // 2)
            pictures[str(label), path] = picture(on_paper(sheet, size, generator(path), 0.08, 0.2, 10), 8)
    return pictures


def glyphs(size: int, per_class: int) -> Pictures:
    """The digits and letters in matplotlib's text fonts; class = character, each font in turn until `per_class`."""
    fonts, pictures = text_fonts(4 * size), {}
    for character in CHARACTERS:
        for number in range(per_class):
            name = sorted(fonts)[number % len(fonts)]
            path = f"{character}/{name}-{number // len(fonts)}"
            pictures[character, path] = picture(written(fonts[name], character, size, generator(path)), size)
    return pictures


def patches(size: int, per_class: int, places: int) -> Pictures:
    """Jittered crops of scikit-learn's photographs; class = place, the `places` most detailed of a grid in each."""
    bunch, pictures = load_sample_images(), {}
    for file, photo in zip(bunch.filenames, bunch.images, strict=True):
        stem = Path(file).stem
        for (row, column), centre in detailed(photo, places).items():
            # The row comes first, so that sorting by name leaves places of every photo in both halves.
            place = f"row{row}-column{column}-{stem}"
            for number in range(per_class):
                path = f"{place}/{number:03d}"
                pixels = cropped(Image.fromarray(photo), centre, size, generator(path))
                pictures[place, path] = picture(pixels, WINDOW)
    return pictures


def picture(pixels: UInt8[np.ndarray, "size size 3"], side: int) -> Picture:
    """A drawn image; the hash is of its pixels."""
    return Picture(pixels, side, side, pixels.nbytes, hashlib.sha256(pixels.tobytes()).hexdigest())


def generator(path: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(path.encode()))


def text_fonts(pixels: int) -> dict[str, ImageFont.FreeTypeFont]:
    """The installed fonts that hold a glyph of its own for each character, by name."""
    fonts = {}
    for file in Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf"):
        # The basic layout is compiled into Pillow; the other one depends on what the machine has.
        font = ImageFont.truetype(file, pixels * 0.7, layout_engine=ImageFont.Layout.BASIC)
        # A missing glyph is drawn as the same empty box every time.
        if file.stem not in SYMBOLS and len({bytes(font.getmask(c)) for c in CHARACTERS}) == len(CHARACTERS):
            fonts[file.stem] = font
    return fonts


def written(
    font: ImageFont.FreeTypeFont, character: str, size: int, random: np.random.Generator
) -> UInt8[np.ndarray, "size size 3"]:
    """One character in a random ink on a random paper, shifted, turned and scaled a little."""
    side = 4 * size
    sheet = Image.new("L", (side, side))
    ImageDraw.Draw(sheet).text((side / 2, side * 0.74), character, fill=255, font=font, anchor="ms")
    return on_paper(sheet, size, random, 0.03, 0.1, 8)


def on_paper(
    sheet: Image.Image, size: int, random: np.random.Generator, shift: float, scale: float, degrees: int
) -> UInt8[np.ndarray, "size size 3"]:
    """Ink (bright on the sheet) in a random dark colour on a random light one, moved within the given limits."""
    side = sheet.width
    centre = side / 2 + random.uniform(-shift, shift, 2) * side
    sheet = around(sheet, centre, side / random.uniform(1 - scale, 1 + scale), side, random, degrees)
    ink = np.asarray(sheet.resize((size, size), Image.Resampling.LANCZOS), np.float64)[..., None] / 255
    dark, light = random.uniform(0, 80, 3), random.uniform(205, 255, 3)
    return np.round(ink * dark + (1 - ink) * light).astype(np.uint8)


def detailed(photo: UInt8[np.ndarray, "y x 3"], places: int) -> dict[tuple[int, int], tuple[float, float]]:
    """The grid's `places` cells with the strongest edges, as {(row, column): (x, y)}: sky looks the same everywhere."""
    height, width = photo.shape[:2]
    edges = sum(np.abs(part) for part in np.gradient(photo.mean(2)))
    margin = 0.9 * WINDOW
    strengths = {}
    for row, y in enumerate(np.linspace(margin, height - margin, GRID[0])):
        for column, x in enumerate(np.linspace(margin, width - margin, GRID[1])):
            top, left = round(y - WINDOW / 2), round(x - WINDOW / 2)
            strengths[row, column] = edges[top : top + WINDOW, left : left + WINDOW].mean(), (float(x), float(y))
    strongest = sorted(strengths, key=lambda cell: strengths[cell][0])[-places:]
    return {cell: strengths[cell][1] for cell in sorted(strongest)}


def cropped(
    photo: Image.Image, centre: tuple[float, float], size: int, random: np.random.Generator
) -> UInt8[np.ndarray, "size size 3"]:
    """A view of the place: shifted, turned, scaled, perhaps mirrored, in another light."""
    where = np.array(centre) + random.uniform(-0.15, 0.15, 2) * WINDOW
    view = around(photo, where, WINDOW * random.uniform(0.75, 1.15), size, random, 15)
    pixels = np.asarray(view, np.float64)[:, :: random.choice([-1, 1])]
    mean = pixels.mean()
    pixels = (pixels - mean) * random.uniform(0.7, 1.2) + mean * random.uniform(0.7, 1.3)
    return np.clip(np.round(pixels * random.uniform(0.9, 1.1, 3)), 0, 255).astype(np.uint8)


def around(
    image: Image.Image, centre: np.ndarray, window: float, size: int, random: np.random.Generator, degrees: int
) -> Image.Image:
    """The square `window` around `centre` (x, y), turned by up to `degrees`, as `size` x `size` pixels."""
    angle = np.deg2rad(random.uniform(-degrees, degrees))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) * (window / size)
    start = centre - turn @ np.array([size / 2, size / 2])
    matrix = (turn[0, 0], turn[0, 1], start[0], turn[1, 0], turn[1, 1], start[1])
    return image.transform((size, size), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)


class Drawn(Kind):
    """Images that are drawn, from the `Params` of `images`."""

    def __init__(self, draw: Callable[[Any], Pictures]) -> None:
        self.draw = draw

    def open(self, raw: Path, ask: Ask) -> Candidates:
        drawn = self.draw(ask.params)
        classes = {path: class_name for class_name, path in drawn}
        rows = by_class(classes, ask.unseen)
        return Candidates(rows, (drawn[classes[path], path] for path in rows), {})
