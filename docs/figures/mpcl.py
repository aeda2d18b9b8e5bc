"""MPCL: one encoder under four heads; where the contrast between heads pulls them; how the balance weighs them."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from docs.figures.style import COLOURS, GREY, SOFT, arrow, bare, box, panels, save

HEADS, EPSILON = 4, 0.5
ACCURACIES = np.array([0.70, 0.75, 0.80, 0.85])


def network(axes: Axes) -> None:
    axes.set(xlim=(0, 7.4), ylim=(0.2, 4.8), title="one encoder, four heads")
    bare(axes)
    box(axes, 1.0, 2.5, "encoder", GREY, 1.7, 1.0)
    for m in range(HEADS):
        y = 4.15 - 1.1 * m
        arrow(axes, (1.85, 2.5), (3.0, y))
        box(axes, 3.8, y, f"head {m + 1}", COLOURS[m], 1.6, 0.62)
        arrow(axes, (4.6, y), (5.4, y), COLOURS[m])
        axes.text(5.55, y, f"InfoNCE {m + 1}", va="center", fontsize=9, color=COLOURS[m])


def contrast(axes: Axes) -> None:
    """Directions whose mean cosine is as low as it can be, for two, three and four heads."""
    axes.set(xlim=(-1.35, 6.5), ylim=(-1.75, 1.4), aspect="equal", title="PCR: heads pulled apart")
    bare(axes)
    for i, heads in enumerate((2, 3, 4)):
        # Four unit vectors with equal cosines lie in space: the corners of a tetrahedron, seen from above.
        corners = np.linspace(0, 2 * np.pi, min(heads, 3), endpoint=False) + np.pi / 2
        ends = np.stack([np.cos(corners), np.sin(corners)], 1) * (0.943 if heads == 4 else 1)
        for m, (x, y) in enumerate(ends):
            arrow(axes, (2.6 * i, 0), (2.6 * i + x, y), COLOURS[m])
        if heads == 4:
            axes.plot(2.6 * i, 0, "o", color=COLOURS[3], ms=7)
        text = f"M = {heads}\nmean cosine \N{MINUS SIGN}{1 / (heads - 1):.2f}"
        axes.text(2.6 * i, -1.25, text, ha="center", va="top", fontsize=8.5, color=SOFT)


def balance(axes: Axes) -> None:
    weights = np.exp((1 - ACCURACIES) / EPSILON)
    weights /= weights.sum()
    bars = axes.bar(range(HEADS), weights, color=COLOURS[:HEADS], width=0.6)
    axes.bar_label(bars, [f"{weight:.3f}" for weight in weights], fontsize=9, padding=2)
    axes.axhline(1 / HEADS, color=GREY, lw=0.9, ls="--")
    axes.set_xticks(range(HEADS), [f"{accuracy:.2f}" for accuracy in ACCURACIES])
    axes.set(ylim=(0, 0.36), yticks=[], xlabel="accuracy of the head", title="PTB: weight of its loss")
    axes.spines[["top", "right", "left"]].set_visible(False)


def draw(target: Path) -> None:
    figure, axes = panels(10.2, 2.9, 3, width_ratios=[1.15, 1.35, 1])
    network(axes[0])
    contrast(axes[1])
    balance(axes[2])
    save(figure, target)
