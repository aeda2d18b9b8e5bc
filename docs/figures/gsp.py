"""Where GSP looks: a map of features, and the weight of each place for several mu, solved exactly."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from docs.figures.style import BLUE, GREEN, SOFT, bare, panels, save

EPSILON, SIDE = 10.0, 9


def weights(nearest: np.ndarray, mu: float) -> np.ndarray:
    """p of every place: sigmoid(u + a) / (n mu), with u such that they sum to 1 (bisection on one number)."""
    if mu == 1:
        return np.full(nearest.shape, 1 / nearest.size)
    a, low, high = -EPSILON * nearest, -200.0, 200.0
    for _ in range(200):
        u = (low + high) / 2
        chosen = 1 / (1 + np.exp(-(u + a)))
        low, high = (u, high) if chosen.mean() < mu else (low, u)
    return chosen / (nearest.size * mu)


def below(axis: Axes, text: str) -> None:
    axis.text(0.5, -0.06, text, transform=axis.transAxes, ha="center", va="top", fontsize=9, color=SOFT)


def draw(target: Path) -> None:
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    inside = 1 / (1 + np.exp(1.6 * (np.hypot(x - 0.8, 1.25 * (y + 0.5)) - 2.1)))
    distance = 1.15 - 0.95 * inside + rng.normal(0, 0.06, inside.shape)
    figure, axes = panels(9.4, 2.75, 4)
    shades = LinearSegmentedColormap.from_list("away", ["#ffffff", BLUE])
    axes[0].imshow(distance, cmap=shades.reversed())
    axes[0].set_title("distance to the\nnearest prototype")
    strong = LinearSegmentedColormap.from_list("weight", ["#f4f6f8", GREEN])
    for axis, mu in zip(axes[1:], (1.0, 0.5, 0.2), strict=True):
        p = weights(distance, mu)
        axis.imshow(p, cmap=strong, vmin=0, vmax=1 / (0.2 * p.size))
        best = np.sort(p.ravel())[::-1][: p.size // 5].sum()
        axis.set_title(f"weights, µ = {mu:g}" + ("\n(average pooling)" if mu == 1 else "\n"))
        below(axis, f"a fifth of the places holds {100 * best:.0f} %")
    below(axes[0], "dark: near")
    for axis in axes:
        bare(axis)
    save(figure, target)
