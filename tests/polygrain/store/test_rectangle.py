import numpy as np
from PIL import Image

from polygrain.store.rectangle import square


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
