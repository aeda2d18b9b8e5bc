"""Grappa in three steps: the same points in few and in many clusters, a bottleneck behind each block, the fusion."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from sklearn.cluster import KMeans

from docs.figures.style import BLUE, COLOURS, GREEN, GREY, ORANGE, SOFT, arrow, bare, box, panels, save


def clusters(axes: Axes, k: int, points: np.ndarray) -> None:
    labels = KMeans(k, n_init=3, random_state=0).fit_predict(points)
    axes.scatter(*points.T, s=7, c=[COLOURS[label % len(COLOURS)] for label in labels], linewidths=0)
    axes.set_title(f"k = {k}", fontsize=9.5, fontweight="normal", color=SOFT, pad=2)
    bare(axes)


def block(axes: Axes) -> None:
    """One block of the encoder with its adaptors, from left to right."""
    axes.set(xlim=(0, 10), ylim=(0, 4.4))
    bare(axes)
    for x in (0.2, 8.4):
        arrow(axes, (x, 2), (x + 0.9, 2))
    box(axes, 2.1, 2, "block of the\nfrozen encoder", GREY, 2.1, 1.1)
    arrow(axes, (3.15, 2), (7.9, 2))
    axes.text(5.6, 2.12, "h", ha="center", fontsize=9, color=SOFT)
    for y, name, colour, alpha in ((3.7, "b₁ (k = 3)", BLUE, "α₁"), (3.0, "b₂ (k = 9)", ORANGE, "α₂")):
        box(axes, 5.3, y, name, colour, 1.7, 0.52)
        axes.plot([3.5, 3.5, 4.45], [2, y, y], color=GREY, lw=1)
        axes.plot([6.15, 8.15], [y, y], color=colour, lw=1)
        axes.text(6.8, y + 0.1, alpha, fontsize=9, color=colour)
    arrow(axes, (8.15, 3.7), (8.15, 2.24))
    ring = {"boxstyle": "circle", "fc": "white", "ec": GREY}
    axes.text(8.15, 2, "+", ha="center", va="center", fontsize=12, bbox=ring)
    box(axes, 5.3, 0.7, "attention: the weights α of this image", GREEN, 5.2, 0.6)
    axes.plot([3.5, 3.5], [2, 1.0], color=GREEN, lw=1, ls=":")
    axes.plot([6.95, 6.95], [1.0, 2.9], color=GREEN, lw=1, ls=":")


def draw(target: Path) -> None:
    rng = np.random.default_rng(4)
    middles = np.array([[0, 0], [4, 0.6], [1.6, 3.6]])
    parts = middles[:, None] + rng.normal(0, 0.75, (3, 3, 2))
    points = (parts[:, :, None] + rng.normal(0, 0.24, (3, 3, 26, 2))).reshape(-1, 2)
    figure, (few, many, network) = panels(10.2, 2.7, 3, width_ratios=[1, 1, 2.5])
    clusters(few, 3, points)
    clusters(many, 9, points)
    block(network)
    titles = {few: "1  The same features, coarse and fine", network: "2, 3  A set of adaptors for each k, fused"}
    for axes, text in titles.items():
        axes.text(0, 1.13, text, transform=axes.transAxes, fontweight="bold")
    save(figure, target)
