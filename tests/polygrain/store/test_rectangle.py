import numpy as np
import pytest
from PIL import Image

from polygrain.store.rectangle import rectangle


def test_rectangle__squash_keeps_what_a_crop_cuts_off():
    pixels = np.full((40, 120, 3), 255, np.uint8)
    pixels[:, :40], pixels[:, 80:] = 0, 0
    image = Image.fromarray(pixels)
    squashed = rectangle(image, 60, "squash")
    assert squashed.shape == (60, 60, 3) and rectangle(image, 60).min() > 200
    expected = np.asarray(image.resize((60, 60), Image.Resampling.LANCZOS))
    assert np.abs(squashed.astype(int) - expected).max() <= 1
    assert rectangle(Image.new("RGB", (1, 1_000_000)), 16, "squash").shape == (16, 16, 3)


def test_rectangle__is_upright():
    image = Image.new("RGB", (30, 30), "black")
    image.paste((255, 255, 255), (0, 0, 30, 15))
    image.getexif()[0x0112] = 3  # upside down
    upright = rectangle(image, 10)
    assert upright[1, 5].tolist() == [0, 0, 0] and upright[8, 5].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((300, 300), (40, 40)),
        ((280, 200), (40, 40)),  # 1.4: the centre square shows all that matters
        ((300, 200), (40, 60)),
        ((200, 300), (60, 40)),
        ((355, 200), (40, 70)),
        ((1200, 200), (40, 120)),  # the middle 3 to 1
        ((1, 80_000), (120, 40)),
    ],
)
def test_rectangle__whole_where_the_image_is_no_square_nearly(size: tuple[int, int], expected: tuple[int, int]):
    image = Image.new("RGB", size)
    assert rectangle(image, 40, "whole").shape == (*expected, 3)
    assert rectangle(image, 40).shape == (40, 40, 3)


def test_rectangle__whole_shows_both_ends_and_of_a_strip_the_middle():
    image = Image.new("RGB", (300, 100))
    image.paste("white", (0, 0, 50, 100))
    image.paste("white", (250, 0, 300, 100))
    seen = rectangle(image, 20, "whole")
    assert (
        seen.shape == (20, 60, 3) and seen[:, :9].min() > 250 and seen[:, 12:48].max() < 5 and seen[:, 51:].min() > 250
    )
    strip = Image.new("RGB", (500, 100))
    strip.paste(image, (100, 0))
    assert np.abs(rectangle(strip, 20, "whole").astype(int) - seen)[:, 2:-2].max() <= 1
    image.getexif()[0x0112] = 6  # turned by a quarter
    assert rectangle(image, 20, "whole").shape == (60, 20, 3)


def test_rectangle__what_is_stored_is_seen_as_it_is():
    for width in range(16, 64, 3):
        noise = np.random.default_rng(width).integers(0, 256, (20, width, 3), dtype=np.uint8)
        stored = rectangle(Image.fromarray(noise), 32, "whole")
        np.testing.assert_array_equal(rectangle(Image.fromarray(stored), 32, "whole"), stored)
