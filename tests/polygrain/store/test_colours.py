import io

import numpy as np
import pytest
from PIL import Image, ImageCms

from polygrain.store import colours
from polygrain.store.colours import on_white
from tests.helpers import icc


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


COLOURS = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
P3 = icc.rgb(icc.DISPLAY_P3)
GREY = icc.profile(b"GRAY", b"XYZ ", {b"kTRC": b"curv" + bytes(4) + (1).to_bytes(4) + (300).to_bytes(2)})


def saved(image: Image.Image, kind: str, profile: bytes) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, kind, icc_profile=profile)
    return Image.open(stream)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "RGBA", "P"])
@pytest.mark.parametrize(("primaries", "gamma"), [(icc.SRGB, None), (icc.DISPLAY_P3, None), (icc.ADOBE_RGB, icc.GAMMA)])
def test_on_white__one_picture_in_several_spaces(kind: str, primaries: icc.Primaries, gamma: float | None):
    image, profile = Image.fromarray(icc.encoded(COLOURS, primaries, gamma)), icc.rgb(primaries, gamma)
    if kind == "RGBA":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    image = saved(image.quantize(256) if kind == "P" else image, "TIFF" if kind == "TIFF" else "PNG", profile)
    shown = on_white(image)
    expected = Image.fromarray(COLOURS)
    if kind == "RGBA":
        expected.putalpha(image.getchannel("A"))
        expected = on_white(expected)
    assert np.abs(np.asarray(shown, int) - np.asarray(expected)).mean() < 1
    np.testing.assert_array_equal(on_white(shown), shown)


def test_on_white__the_colours_that_inks_have_in_print():
    nodes = np.random.default_rng(1).integers(20, 236, (2, 2, 2, 2, 3))
    nodes[0, 0, 0, 0], nodes[1, 1, 1, 1] = 255, 0
    inks = np.random.default_rng(2).integers(0, 2, (12, 12, 4), np.uint8)
    image = saved(Image.fromarray(255 * inks, "CMYK"), "TIFF", icc.printed(nodes))
    expected = nodes[tuple(np.moveaxis(inks, -1, 0))]
    assert np.abs(np.asarray(on_white(image), int) - expected).max() <= 3


@pytest.mark.parametrize("profile", [b"", P3])
def test_on_white__lab_says_by_itself_what_it_means(profile: bytes):
    to_lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    image = saved(to_lab.apply(Image.fromarray(COLOURS)), "TIFF", profile)
    assert image.mode == "LAB" and np.abs(np.asarray(on_white(image), int) - COLOURS).mean() < 2


@pytest.mark.parametrize(
    "profile", [P3[:1000], P3[:100], b"\xff" * 500, P3 + bytes(4_000_000), GREY, icc.printed(np.ones((2, 2, 2, 2, 3)))]
)
def test_on_white__a_profile_that_does_not_fit_is_ignored_and_once_said(profile: bytes, caplog):
    colours.ignore.cache_clear()
    for value in range(3):
        image = saved(Image.fromarray(COLOURS), "TIFF", profile + bytes(value))
        np.testing.assert_array_equal(on_white(image), COLOURS)
    assert len(caplog.messages) == 1


def test_on_white__grey_values_stay():
    image = Image.fromarray(COLOURS[..., 0])
    np.testing.assert_array_equal(np.asarray(on_white(saved(image, "PNG", GREY)))[..., 0], image)


def test_on_white__scales_before_colours_where_it_may():
    large = Image.fromarray(icc.encoded(COLOURS, icc.DISPLAY_P3)).resize((480, 480), Image.Resampling.BICUBIC)
    large = saved(large, "PNG", P3)
    whole, scaled = on_white(large), on_white(large, 40)
    assert whole.size == (480, 480) and scaled.size == (120, 120)
    assert np.abs(np.asarray(whole.resize(scaled.size), int) - np.asarray(scaled)).mean() < 2
