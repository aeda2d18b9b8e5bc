import numpy as np
import pytest
from PIL import Image

from polygrain.store.colours import on_white


def test_on_white__scales_16_bits_and_lays_transparency_on_white():
    values = np.array([[0, 257 * 100, 65535]], np.uint16)
    assert np.asarray(on_white(Image.fromarray(values)))[0, :, 0].tolist() == [0, 100, 255]
    assert np.asarray(on_white(Image.new("RGBA", (1, 1), (255, 0, 0, 0)))).tolist() == [[[255, 255, 255]]]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16"])
@pytest.mark.parametrize(("ink", "ground"), [(255, 128), (249, 128), (90, 255)])
def test_on_white__what_white_would_hide_lies_on_grey(mode: str, ink: int, ground: int):
    sign = Image.new("LA", (9, 9), (255 - ink, 0))
    sign.paste((ink, 255), (2, 2, 7, 7))
    if mode == "I;16":
        grey, alpha = (np.asarray(band) for band in sign.split())
        sign = Image.fromarray(np.where(alpha, 257 * grey.astype(np.uint16), 7).astype(np.uint16))
        sign.info["transparency"] = 7
    else:
        sign = sign.convert("RGBA").quantize(4) if mode == "P" else sign.convert(mode)
    pixels = np.asarray(on_white(sign))
    assert (pixels[0, 0] == ground).all() and (abs(pixels[4, 4].astype(int) - ink) < 2).all()


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("uint16", 0, 127), ("uint16", 29_000, 33_000), ("int32", -5, 70_000), ("float32", 0, 1), ("float32", -9e9, 9e9)],
)
def test_on_white__values_are_spread_over_a_narrow_range_and_those_of_other_depths(kind: str, low: float, high: float):
    values = np.linspace(low, high, 100).astype(kind).reshape(10, 10)
    expected = np.linspace(0, 255, 100).reshape(10, 10)
    assert np.abs(np.asarray(on_white(Image.fromarray(values)))[..., 0] - expected).max() < 3
    if kind == "float32":
        values[0] = np.nan  # no value: transparent
        assert np.asarray(on_white(Image.fromarray(values)))[0].min() == 255


def test_on_white__a_photograph_of_8_bits_is_as_it_is():
    fog = Image.fromarray(np.random.default_rng(0).integers(250, 253, (9, 9, 3), np.uint8))
    np.testing.assert_array_equal(on_white(fog), fog)
