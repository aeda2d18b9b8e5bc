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

    def bound(self, sign: int) -> list[float]:
        """The means and two deviations more or less; one run alone has no deviation, which is NaN."""
        deviations = [0.0 if math.isnan(deviation) else deviation for deviation in self.deviations]
        return [mean + 2 * sign * deviation for mean, deviation in zip(self.means, deviations, strict=True)]


def recall_curves(label: str, curves: Sequence[Curve]) -> Markup:
    """aR@k over k on a logarithmic scale, with bands of two standard deviations over splits."""
    largest = max(len(curve.means) for curve in curves)
    span = math.log10(largest) or 1.0
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    grid = figures.ticks(0.0, min(100.0, max(max(curve.bound(1)) for curve in curves)))

    def x_of(k: int) -> float:
        return LEFT + 6 + math.log10(k) / span * (right - LEFT - 10)

    def y_of(value: float) -> float:
        return bottom - min(max(value, 0.0), max(grid)) / max(grid) * (bottom - TOP)

    def points(values: Sequence[float]) -> list[str]:
        return [f"{x_of(k):.1f},{y_of(value):.1f}" for k, value in enumerate(values, 1)]

    x_ticks = [(x_of(k), str(k)) for k in TICKS if k <= largest]
    parts = [figures.axes(grid, x_ticks, y_of, "k (log scale)", "aR@k, %")]
    for curve in curves:
        outline = " ".join([*points(curve.bound(1)), *reversed(points(curve.bound(-1)))])
        parts.append(f'<polygon class="band {curve.style}" points="{outline}"/>')
    for curve in curves:
        tip = escape(f"{curve.name}: aR@1 {curve.means[0]:.1f} %")
        line = " ".join(points(curve.means))
        parts.append(f'<polyline class="line {curve.style}" points="{line}"><title>{tip}</title></polyline>')
    ends = [Line(curve.name, curve.style, [(x_of(len(curve.means)), curve.means[-1])]) for curve in curves]
    parts.append(figures.end_labels(ends, y_of, [line.end_x for line in ends]))
    return figures.frame(label, WIDTH, HEIGHT, parts)
