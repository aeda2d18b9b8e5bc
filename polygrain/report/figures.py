"""Small drawings as inline SVG: pure functions of numbers, the same bytes every time.

Colours are CSS classes of the page, for light and dark themes. Every drawing has an accessible label, every mark a
tooltip, and lines also differ in dashes and carry their names.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

WIDTH, HEIGHT = 384, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 120, 12, 36
LABEL_GAP = 13.5
HEAT_LEFT, HEAT_WIDTH, HEAT_ROW = 52, 316, 22


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
    """The last value of each line, in words, for readers who do not see the drawing."""
    return ", ".join(f"{line.name} {line.end_y:.4g}" for line in lines)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers, 1, 2 or 5 times a power of ten apart, that enclose [low, high]."""
    span = max(high - low, 1e-3 * max(abs(low), abs(high))) or 1.0  # a level line has no scale
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * count >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def pushed_apart(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The positions moved apart to at least `gap`, order kept, within [low, high] where there is room."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = [0.0] * len(positions)
    floor = low
    for i in order:
        placed[i] = max(positions[i], floor)
        floor = placed[i] + gap
    ceiling = high
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def finite(lines: Sequence[Line]) -> list[Line]:
    """The lines without the points that have no value, and without lines that have none left."""
    measured = [replace(line, points=[(x, y) for x, y in line.points if math.isfinite(y)]) for line in lines]
    return [line for line in measured if line.points]


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
    heights = [y_of(line.end_y) for line in lines]
    placed = pushed_apart(heights, LABEL_GAP, float(TOP), float(HEIGHT - BOTTOM))
    starts = [*ends, *[right] * (len(lines) - len(ends))]
    parts = []
    for line, end, start, y in zip(lines, heights, starts, placed, strict=True):
        parts.append(f'<path class="leader" d="M{start + 4:.1f},{end:.1f} L{right + 8},{y:.1f} h4"/>')
        swatch = f'<line class="line {line.style}" x1="{right + 13}" x2="{right + 27}" y1="{y:.1f}" y2="{y:.1f}"/>'
        parts.append(f'<g opacity="{line.strength:.2f}">{swatch}</g>')
        parts.append(f'<text class="name" x="{right + 31}" y="{y + 3.5:.1f}">{escape(line.name)}</text>')
    return "".join(parts)


def heat_map(
    label: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    centre: float,
    limit: float,
    unit: str = "layer",
) -> Markup:
    """Cells of each `unit`, coloured by distance from `centre`, in full at `limit` and beyond; fractions, shown in %.

    Above the centre and below it are two hues; the number stands in the cell where it fits, and always in the tooltip.
    """
    width = HEAT_WIDTH / len(columns)
    parts = []
    for j, column in enumerate(columns):
        if j % max(1, math.ceil(14 / width)) == 0:
            x = HEAT_LEFT + (j + 0.5) * width
            parts.append(f'<text class="tick" x="{x:.1f}" y="10" text-anchor="middle">{escape(column)}</text>')
    for i, row in enumerate(rows):
        y = 16 + i * HEAT_ROW
        parts.append(f'<text class="name" x="{HEAT_LEFT - 6}" y="{y + 14.5}" text-anchor="end">{escape(row)}</text>')
        for j, column in enumerate(columns):
            value = values[i][j]
            if not math.isfinite(value):
                continue
            share = min(1.0, abs(value - centre) / limit)
            hue = "more" if value >= centre else "less"
            tip = escape(f"{row}, {unit} {column}: {100 * value:.1f} %")
            place = (
                f'x="{HEAT_LEFT + j * width + 0.75:.2f}" y="{y}" width="{width - 1.5:.2f}" height="{HEAT_ROW - 1.5}"'
            )
            parts.append(
                f'<rect class="heat {hue}" {place} rx="2" fill-opacity="{share:.3f}"><title>{tip}</title></rect>'
            )
            if width >= 24:
                strong = " strong" if share > 0.6 else ""
                x = HEAT_LEFT + (j + 0.5) * width
                text = f"{100 * value:.1f}" if width >= 26 else f"{100 * value:.0f}"
                parts.append(f'<text class="cell{strong}" x="{x:.1f}" y="{y + 14}" text-anchor="middle">{text}</text>')
    return frame(label, HEAT_LEFT + HEAT_WIDTH + 4, 18 + len(rows) * HEAT_ROW, parts)


def frame(label: str, width: int, height: int, parts: list[str]) -> Markup:
    head = f'<svg class="figure" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return Markup(head + "".join(parts) + "</svg>")
