"""A drawn map whose features are colours, so that the selected places can be seen (GSP, Fig. 2)."""

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8

from polygrain.gsp.poolings.prototypes import Selection, costs

SIDE = 10
RED, GREEN, BLUE = np.eye(3)
PROTOTYPES = torch.tensor(np.stack([RED, BLUE]), dtype=torch.float32)


def colours() -> Float32[np.ndarray, "y x 3"]:
    """Red and blue discs on green, with fixed noise: no two places cost the same."""
    noise = np.random.default_rng(0).normal(0, 0.05, (SIDE, SIDE, 3))
    red, blue = discs()[..., None]
    return (np.where(red, RED, np.where(blue, BLUE, GREEN)) + noise).clip(0, 1).astype(np.float32)


def discs() -> np.ndarray:
    """Whether a place is red, and whether it is blue; 25 of 100 each, as in the print half of the map is green."""
    y, x = np.mgrid[:SIDE, :SIDE]
    return np.stack([(x - 2.4) ** 2 + (y - 2.2) ** 2, (x - 6.6) ** 2 + (y - 6.8) ** 2]) <= 7.5


def fill(cost: Float[np.ndarray, " place"], mu: float) -> Float[np.ndarray, " place"]:
    """The weights without smoothing (P1): the cheapest places, each whole, and a part of the last, sum 1."""
    left = mu * len(cost) - cost.argsort().argsort()
    return left.clip(0, 1) / (mu * len(cost))


def weigh(mus: list[float], epsilon: float) -> tuple[UInt8[np.ndarray, "y x 3"], dict[str, Float32[np.ndarray, "y x"]]]:
    """The map as a picture, and its weights for each mu without and with smoothing, with red and blue as prototypes."""
    features = colours()
    maps = torch.from_numpy(features).permute(2, 0, 1)[None]
    cost = costs(maps.flatten(2), PROTOTYPES)[0].amin(0).numpy()
    weights = {}
    for mu in mus:
        selection = Selection(3, len(PROTOTYPES), mu, epsilon)
        selection.prototypes.data = PROTOTYPES
        weights[f"mu {mu:g}, P1"] = fill(cost, mu).reshape(SIDE, SIDE).astype(np.float32)
        with torch.no_grad():
            weights[f"mu {mu:g}, P2"] = selection(maps)[0][0].numpy()
    return np.round(255 * features).astype(np.uint8), weights


def on_object(weights: Float32[np.ndarray, "y x"]) -> float:
    """The share of the weight that lies on red and blue."""
    return float(weights[discs().any(0)].sum())


def reached(weights: Float32[np.ndarray, "y x"]) -> float:
    """The share of red and blue places with at least half of the weight that average pooling gives them."""
    return float((weights[discs().any(0)] >= 0.5 / weights.size).mean())
