"""Weights of poolings as pictures: every place as bright as its weight, in the colour of its nearest prototype."""

import colorsys

import numpy as np
from jaxtyping import Float32, Int16, UInt8

GOLDEN = 0.61803398875  # of the colour circle: neighbours in number are far apart in hue


def colour(number: int) -> tuple[float, float, float]:
    """The colour of one prototype, in 0..1."""
    return colorsys.hsv_to_rgb(number * GOLDEN % 1, 0.75, 1.0)


def enlarge(places: np.ndarray, size: int) -> np.ndarray:
    """Each place as a rectangle of pixels."""
    y, x = (np.arange(size) * count // size for count in places.shape[:2])
    return places[y][:, x]


def shade(
    pixels: UInt8[np.ndarray, "size size 3"], weights: Float32[np.ndarray, "y x"]
) -> UInt8[np.ndarray, "size size 3"]:
    """The image, dark where the weight is small beside the largest one."""
    light = enlarge(weights / max(float(weights.max()), 1e-12), len(pixels))
    return np.round(pixels * (0.12 + 0.88 * light[..., None])).astype(np.uint8)


def tint(
    pixels: UInt8[np.ndarray, "size size 3"], weights: Float32[np.ndarray, "y x"], nearest: Int16[np.ndarray, "y x"]
) -> UInt8[np.ndarray, "size size 3"]:
    """The grey image under the colour of each place's nearest prototype, as strong as the weight."""
    grey = pixels.mean(2, keepdims=True).repeat(3, 2) / 255
    hues = np.array([colour(number) for number in nearest.ravel().tolist()]).reshape(*nearest.shape, 3)
    strength = 0.85 * enlarge(weights / max(float(weights.max()), 1e-12), len(pixels))[..., None]
    return np.round(255 * ((1 - strength) * 0.6 * grey + strength * enlarge(hues, len(pixels)))).astype(np.uint8)


def share_of_best_quarter(weights: Float32[np.ndarray, "image y x"]) -> float:
    """The mean weight on the quarter of the places with most weight: 0.25 for a plain mean."""
    flat = np.sort(weights.reshape(len(weights), -1), 1)[:, ::-1]
    return float(flat[:, : max(1, flat.shape[1] // 4)].sum(1).mean())
