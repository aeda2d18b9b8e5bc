"""Small drawings as inline SVG: pure functions of numbers, the same bytes every time.

Colours are CSS classes that the page defines for light and dark, so a drawing follows its reader's theme. Every drawing
has an accessible label, every mark a tooltip, and no meaning rests on colour alone: lines differ in dashes and carry
their names.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

WIDTH, HEIGHT = 384, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 120, 12, 36
LABEL_GAP = 13.5


@dataclass(frozen=True)
class Line:
    """`points` are (x, y), `style` a CSS class of the page; `strength` in (0, 1] fades one line of a family."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]
    strength: float = 1.0

    @property
    def end_x(self) -> float:
        x, _ = self.points[-1]
        return x

    @property
    def end_y(self) -> float:
        _, y = self.points[-1]
        return y


def last_values(lines: Sequence[Line]) -> str:
    """Where the lines end, in words: what a drawing says to those who do not see it."""
    return ", ".join(f"{line.name} {line.end_y:.4g}" for line in lines)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers, 1, 2 or 5 times a power of ten apart, that enclose [low, high]."""
    span = max(high - low, 1e-9 * max(abs(low), abs(high), 1.0), 1e-9)
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * count >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def pushed_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The positions moved apart to at least `gap`, order kept, within [low, high] where there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    floor = low
    for i in order:
        placed[i] = max(wanted[i], floor)
        floor = placed[i] + gap
    ceiling = high
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def finite(lines: Sequence[Line]) -> list[Line]:
    """The lines without the points that have no value, and without lines that have none left."""
    kept = [replace(line, points=[(x, y) for x, y in line.points if math.isfinite(y)]) for line in lines]
    return [line for line in kept if line.points]


def tick_text(value: float, step: float) -> str:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def line_chart(
    label: str,
    lines: Sequence[Line],
    guides: Sequence[Line] = (),
    *,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    x_label: str,
    y_label: str,
) -> Markup:
    """Lines over x, and `guides` (one point each) as levels across the whole width; names stand at the right edge.

    `x_ticks` are places on the x axis with their names; without them, every x of a point.
    """
    lines, guides = finite(lines), finite(guides)
    ys = [y for line in [*lines, *guides] for _, y in line.points]
    if not ys:
        return Markup("")
    grid = ticks(min(ys), max(ys))
    low, *_, high = grid
    if x_ticks is None:
        x_ticks = [(x, f"{x:g}") for x in sorted({x for line in lines for x, _ in line.points})]
    xs = [x for x, _ in x_ticks]
    pad = 0.04 * (max(xs) - min(xs)) or 0.5
    x_low, x_span = min(xs) - pad, max(xs) - min(xs) + 2 * pad
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x_of(x: float) -> float:
        return LEFT + (x - x_low) / x_span * (right - LEFT)

    def y_of(y: float) -> float:
        return bottom - (y - low) / (high - low) * (bottom - TOP)

    parts = [axes(grid, [(x_of(x), text) for x, text in x_ticks], y_of, x_label, y_label)]
    for guide in guides:
        y = y_of(guide.end_y)
        tip = escape(f"{guide.name}: {guide.end_y:.1f}")
        parts.append(
            f'<line class="line {guide.style}" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}">'
            f"<title>{tip}</title></line>"
        )
    for line in lines:
        parts.append(curve(line, [(x_of(x), y_of(y)) for x, y in line.points]))
    parts.append(end_labels([*lines, *guides], y_of, [x_of(line.end_x) for line in lines]))
    return frame(label, WIDTH, HEIGHT, parts)


def axes(
    grid: list[float], x_ticks: list[tuple[float, str]], y_of: Callable[[float], float], x_label: str, y_label: str
) -> str:
    """Horizontal grid lines with values, names of the x positions (thinned where they would touch), titles."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    first, second, *_ = grid
    step = second - first
    parts = []
    for value in grid:
        y = y_of(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{tick_text(value, step)}</text>'
        )
    taken = -math.inf
    for x, text in x_ticks:
        half = 3.2 * len(text) + 2
        if x - half >= taken:
            parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{escape(text)}</text>')
            taken = x + half
    middle = (LEFT + right) / 2
    parts.append(f'<text class="axis" x="{middle:.0f}" y="{HEIGHT - 5}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'transform="translate(10 {(TOP + bottom) / 2:.0f}) rotate(-90)"'
    parts.append(f'<text class="axis" {turned} text-anchor="middle">{escape(y_label)}</text>')
    return "".join(parts)


def curve(line: Line, places: list[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = f'<g opacity="{line.strength:.2f}"><polyline class="line {line.style}" points="{path}"/>'
    # Many epochs would turn the dots into a thick line.
    dots = list(zip(places, line.points, strict=True))
    for (x, y), (_, value) in dots if len(dots) <= 16 else dots[-1:]:
        tip = escape(f"{line.name}: {value:.4g}")
        drawn += f'<circle class="dot {line.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{tip}</title></circle>'
    return drawn + "</g>"


def end_labels(lines: list[Line], y_of: Callable[[float], float], ends: list[float]) -> str:
    """The name of each line beside its end, moved apart where ends are close, with a thin leader to the end."""
    right = WIDTH - RIGHT
    wanted = [y_of(line.end_y) for line in lines]
    placed = pushed_apart(wanted, LABEL_GAP, float(TOP), float(HEIGHT - BOTTOM))
    starts = [*ends, *[right] * (len(lines) - len(ends))]
    parts = []
    for line, end, start, y in zip(lines, wanted, starts, placed, strict=True):
        parts.append(f'<path class="leader" d="M{start + 4:.1f},{end:.1f} L{right + 8},{y:.1f} h4"/>')
        swatch = f'<line class="line {line.style}" x1="{right + 13}" x2="{right + 27}" y1="{y:.1f}" y2="{y:.1f}"/>'
        parts.append(f'<g opacity="{line.strength:.2f}">{swatch}</g>')
        parts.append(f'<text class="name" x="{right + 31}" y="{y + 3.5:.1f}">{escape(line.name)}</text>')
    return "".join(parts)


def frame(label: str, width: int, height: int, parts: list[str]) -> Markup:
    head = f'<svg class="figure" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return Markup(head + "".join(parts) + "</svg>")
