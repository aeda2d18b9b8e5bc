"""A drawn map whose features are colours, so that one sees what a selection keeps of it (GSP, Fig. 2)."""

import numpy as np
import torch
from jaxtyping import Float32, UInt8

from polygrain.gsp.poolings.generalized_sum import GeneralizedSumPooling

SIDE = 16
OBJECT = ((0.9, 0.2, 0.1), (0.95, 0.8, 0.2))
GROUND = ((0.15, 0.45, 0.2), (0.3, 0.55, 0.85))


def colours() -> Float32[np.ndarray, "y x 3"]:
    """A disc of two colours before sky and grass, with fixed noise."""
    y, x = np.mgrid[:SIDE, :SIDE]
    ground = np.where((y < SIDE // 2)[..., None], GROUND[1], GROUND[0])
    disc = np.where((x < SIDE // 2)[..., None], OBJECT[0], OBJECT[1])
    noise = np.random.default_rng(0).normal(0, 0.03, (SIDE, SIDE, 3))
    return (np.where(inside()[..., None], disc, ground) + noise).clip(0, 1).astype(np.float32)


def inside() -> np.ndarray:
    """Whether a place is on the object; 52 of 256 are."""
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    return y**2 + x**2 <= (SIDE / 4) ** 2


def weigh(
    mus: list[float], epsilon: float
) -> tuple[UInt8[np.ndarray, "y x 3"], dict[float, Float32[np.ndarray, "y x"]]]:
    """The map as a picture, and its weights for each mu, with the object's colours as prototypes."""
    features = colours()
    maps = torch.from_numpy(features).permute(2, 0, 1)[None]
    weights = {}
    for mu in mus:
        layer = GeneralizedSumPooling(3, len(OBJECT), mu, epsilon)
        layer.pool.selection.prototypes.data = torch.tensor(OBJECT)
        with torch.no_grad():
            weights[mu] = layer.weigh(maps)[0].numpy()
    return np.round(255 * features).astype(np.uint8), weights


def on_object(weights: Float32[np.ndarray, "y x"]) -> float:
    """The share of the weight that lies on the object."""
    return float(weights[inside()].sum())
