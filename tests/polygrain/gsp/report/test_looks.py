import numpy as np
import pytest

from polygrain.gsp.report.looks import colour, shade, share_of_best_quarter, tint


def test_shade__is_bright_where_the_weight_is():
    pixels = np.full((8, 8, 3), 200, np.uint8)
    shaded = shade(pixels, np.array([[1.0, 0.5], [0.0, 0.0]], np.float32))
    assert (shaded[:4, :4] == 200).all() and (shaded[:4, 4:] == 112).all() and (shaded[4:] == 24).all()


def test_tint__has_the_colour_of_the_prototype_where_the_weight_is():
    pixels = np.full((4, 4, 3), 100, np.uint8)
    tinted = tint(pixels, np.array([[1.0, 0.0]], np.float32), np.array([[3, 1]], np.int16))
    expected = 255 * (0.15 * 0.6 * 100 / 255 + 0.85 * np.array(colour(3)))
    assert np.allclose(tinted[:, :2], expected, atol=1) and (tinted[:, 2:] == 60).all()
    assert np.abs(np.array(colour(0)) - np.array(colour(1))).max() > 0.3


def test_share_of_best_quarter__is_a_quarter_for_a_mean_and_all_for_a_hard_choice():
    even, hard = np.full((2, 4, 4), 1 / 16, np.float32), np.zeros((2, 4, 4), np.float32)
    hard[:, 1, 1] = 1
    assert share_of_best_quarter(even) == pytest.approx(0.25) and share_of_best_quarter(hard) == 1
