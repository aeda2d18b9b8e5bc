"""How the figures look: white, to be read on dark pages too, and the same bytes whenever they are drawn."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, SOFT, LINE = "#1d2733", "#5b6673", "#c9d1da"
GREEN, BLUE, ORANGE, PURPLE, GREY = "#00785a", "#1f6fb2", "#c4500a", "#7a4fa3", "#8894a0"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#b8336a", "#8a6d00", "#227c9d", "#6b7785")
SETTINGS = {
    "svg.hashsalt": "polygrain",
    "svg.fonttype": "path",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
}


def panels(width: float, height: float, columns: int, **settings: object) -> tuple[Figure, list[Axes]]:
    plt.rcParams.update(SETTINGS)
    figure, axes = plt.subplots(1, columns, figsize=(width, height), squeeze=False, layout="constrained", **settings)
    return figure, list(axes[0])


def bare(axes: Axes) -> None:
    """No ticks, no frame."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def box(axes: Axes, x: float, y: float, text: str, colour: str = BLUE, width: float = 1.0, height: float = 0.5) -> None:
    """A rounded box with its middle at x, y."""
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=f"{colour}1c", edgecolor=colour))
    axes.text(x, y, text, ha="center", va="center", fontsize=9)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = GREY) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)


def save(figure: Figure, target: Path) -> None:
    looks = {"facecolor": "white", "bbox_inches": "tight", "pad_inches": 0.12}
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None}, **looks)
    plt.close(figure)
