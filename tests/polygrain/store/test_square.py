import numpy as np
import pytest
from PIL import Image

from polygrain.store.square import Unreadable, on_white, square


def test_square__squash_keeps_what_a_crop_cuts_off():
    pixels = np.full((40, 120, 3), 255, np.uint8)
    pixels[:, :40], pixels[:, 80:] = 0, 0
    image = Image.fromarray(pixels)
    squashed = square(image, 60, "squash")
    assert squashed.shape == (60, 60, 3) and square(image, 60).min() > 200
    expected = np.asarray(image.resize((60, 60), Image.Resampling.LANCZOS))
    assert np.abs(squashed.astype(int) - expected).max() <= 1
    assert square(Image.new("RGB", (1, 1_000_000)), 16, "squash").shape == (16, 16, 3)


def test_square__is_upright():
    image = Image.new("RGB", (30, 30), "black")
    image.paste((255, 255, 255), (0, 0, 30, 15))
    image.getexif()[0x0112] = 3  # upside down
    upright = square(image, 10)
    assert upright[1, 5].tolist() == [0, 0, 0] and upright[8, 5].tolist() == [255, 255, 255]


def test_on_white__scales_16_bits_and_lays_transparency_on_white():
    values = np.array([[0, 257 * 100, 65535]], np.uint16)
    assert np.asarray(on_white(Image.fromarray(values)))[0, :, 0].tolist() == [0, 100, 255]
    assert np.asarray(on_white(Image.new("RGBA", (1, 1), (255, 0, 0, 0)))).tolist() == [[[255, 255, 255]]]


@pytest.mark.parametrize("values", [np.array([[70000]], np.int32), np.ones((1, 1), np.float32)])
def test_on_white__raise_on_what_is_neither_8_nor_16_bits(values):
    with pytest.raises(Unreadable, match="convert it to 8 or 16 bits"):
        on_white(Image.fromarray(values))
