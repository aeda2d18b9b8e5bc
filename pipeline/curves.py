"""Curves of a stage that trains, as a picture that a page shows without scripts, and as a table."""

import base64
from html import escape

from pipeline.progress import Point, Progress

COLUMNS, MOST_PANELS = 3, 9
WIDTH, HEIGHT = 300, 150
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 34, 22
"""Of a panel, in px: what stands around its curve."""
# Seen on light pages and on dark ones.
STYLE = """
rect { fill: none; stroke: #808b99; stroke-opacity: .35 } line { stroke: #808b99; stroke-opacity: .25 }
polyline { fill: none; stroke: #3f8cff; stroke-width: 2; stroke-linejoin: round } circle, .now { fill: #3f8cff }
text { font: 11px system-ui, sans-serif; fill: #808b99 } .name, .now { font-size: 14px; font-weight: 600 }
.now, .low, .high, .last { text-anchor: end }
"""


def markdown(stage: str, progress: Progress) -> str:
    """What is known of a stage under way: the line it wrote last, its curves, and their numbers."""
    shown = dict(list(progress.curves.items())[-MOST_PANELS:])
    rows = [
        f"| {name} | {points[-1].value:.4g} | {min(values):.4g} | {max(values):.4g} |"
        for name, points in shown.items()
        for values in [[point.value for point in points]]
    ]
    table = "\n".join(["| | now | lowest | highest |", "|---|---:|---:|---:|", *rows])
    picture = f"![{', '.join(shown)}]({address(drawing(shown))})"
    return f"**{stage}** · {progress.text}\n\n{picture}\n\n{table}\n"


def address(svg: str) -> str:
    """The drawing as a data: address, so that it shows without a file server."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def drawing(curves: dict[str, list[Point]]) -> str:
    """A panel for each curve over the rounds, as SVG."""
    columns = min(COLUMNS, len(curves))
    rows = -(-len(curves) // COLUMNS)
    panels = [
        f'<g transform="translate({WIDTH * (i % COLUMNS)} {HEIGHT * (i // COLUMNS)})">{panel(name, points)}</g>'
        for i, (name, points) in enumerate(curves.items())
    ]
    size = f'width="{WIDTH * columns}" height="{HEIGHT * rows}" viewBox="0 0 {WIDTH * columns} {HEIGHT * rows}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{"".join(panels)}</svg>'


def panel(name: str, points: list[Point]) -> str:
    """One curve with its name, its last value and the ends of both axes."""
    values = [point.value for point in points]
    low, high, end = min(values), max(values), points[-1].rounds
    # A curve that does not move lies in the middle.
    span = (high - low) or 1.0
    floor = low if high > low else low - 0.5

    def x(rounds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * rounds / (end or 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - floor) / span

    line = " ".join(f"{x(point.rounds):.1f},{y(point.value):.1f}" for point in points)
    return (
        f'<rect x="2.5" y="2.5" width="{WIDTH - 5}" height="{HEIGHT - 5}" rx="6"/>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(low):.1f}" y2="{y(low):.1f}"/>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(high):.1f}" y2="{y(high):.1f}"/>'
        f'<text class="name" x="12" y="22">{escape(name)}</text>'
        f'<text class="now" x="{WIDTH - RIGHT}" y="22">{values[-1]:.4g}</text>'
        f'<text class="high" x="{LEFT - 6}" y="{y(high) + 4:.1f}">{high:.3g}</text>'
        + (f'<text class="low" x="{LEFT - 6}" y="{y(low) + 4:.1f}">{low:.3g}</text>' if high > low else "")
        + f'<text x="{LEFT}" y="{HEIGHT - 8}">0</text>'
        f'<text class="last" x="{WIDTH - RIGHT}" y="{HEIGHT - 8}">{end:.3g}</text>'
        f'<polyline points="{line}"/><circle cx="{x(end):.1f}" cy="{y(values[-1]):.1f}" r="3"/>'
    )
