"""The recall of several rows over k, each with a band (Risser-Maroix et al., Fig. 3), as inline SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from polygrain.report import figures
from polygrain.report.figures import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Line

TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Curve:
    """Means over splits in percent for k = 1, 2, ..., and standard deviations; `style` is a CSS class of the page."""

    name: str
    style: str
    means: Sequence[float]
    deviations: Sequence[float]


def recall_curves(label: str, curves: Sequence[Curve]) -> Markup:
    """aR@k over k on a logarithmic scale, with bands of two standard deviations over splits; empty without a curve."""
    if not curves:
        return Markup("")
    largest = max(len(curve.means) for curve in curves)
    span = math.log10(largest) or 1.0
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    top = min(100.0, max(mean + 2 * known(d) for c in curves for mean, d in pairs(c)))
    grid = figures.ticks(0.0, top)
    highest = max(grid)

    def x_of(k: int) -> float:
        return LEFT + 6 + math.log10(k) / span * (right - LEFT - 10)

    def y_of(value: float) -> float:
        return bottom - min(max(value, 0.0), highest) / highest * (bottom - TOP)

    x_ticks = [(x_of(k), str(k)) for k in TICKS if k <= largest]
    parts = [figures.axes(grid, x_ticks, y_of, "k (log scale)", "aR@k, %")]
    for curve in curves:
        upper, lower = (
            [(x_of(k), y_of(mean + sign * known(d))) for k, (mean, d) in enumerate(pairs(curve), 1)] for sign in (2, -2)
        )
        outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        parts.append(f'<polygon class="band {curve.style}" points="{outline}"/>')
    for curve in curves:
        places = " ".join(f"{x_of(k):.1f},{y_of(mean):.1f}" for k, mean in enumerate(curve.means, 1))
        tip = escape(f"{curve.name}: aR@1 {curve.means[0]:.1f} %")
        parts.append(f'<polyline class="line {curve.style}" points="{places}"><title>{tip}</title></polyline>')
    ends = [Line(curve.name, curve.style, [(x_of(len(curve.means)), curve.means[-1])]) for curve in curves]
    parts.append(figures.end_labels(ends, y_of, [line.end_x for line in ends]))
    return figures.frame(label, WIDTH, HEIGHT, parts)


def pairs(curve: Curve) -> list[tuple[float, float]]:
    return list(zip(curve.means, curve.deviations, strict=True))


def known(deviation: float) -> float:
    """One run has no deviation; its band has no width."""
    return 0.0 if math.isnan(deviation) else deviation
