"""A table of shares as coloured cells, inline SVG like the other figures."""

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from polygrain.report import figures

LEFT, WIDTH, ROW = 52, 316, 22


def heat_map(
    label: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    centre: float,
    limit: float,
) -> Markup:
    """Cells coloured by distance from `centre`, in full at `limit` and beyond; values are fractions, shown in %.

    Above the centre and below it are two hues; the number stands in the cell where it fits, and always in the tooltip.
    """
    width = WIDTH / len(columns)
    parts = []
    for j, column in enumerate(columns):
        if j % max(1, math.ceil(14 / width)) == 0:
            x = LEFT + (j + 0.5) * width
            parts.append(f'<text class="tick" x="{x:.1f}" y="10" text-anchor="middle">{escape(column)}</text>')
    for i, row in enumerate(rows):
        y = 16 + i * ROW
        parts.append(f'<text class="name" x="{LEFT - 6}" y="{y + 14.5}" text-anchor="end">{escape(row)}</text>')
        for j, column in enumerate(columns):
            value = values[i][j]
            if not math.isfinite(value):
                continue
            share = min(1.0, abs(value - centre) / limit)
            hue = "more" if value >= centre else "less"
            tip = escape(f"{row}, layer {column}: {100 * value:.1f} %")
            place = f'x="{LEFT + j * width + 0.75:.2f}" y="{y}" width="{width - 1.5:.2f}" height="{ROW - 1.5}"'
            parts.append(
                f'<rect class="heat {hue}" {place} rx="2" fill-opacity="{share:.3f}"><title>{tip}</title></rect>'
            )
            if width >= 24:
                strong = " strong" if share > 0.6 else ""
                x = LEFT + (j + 0.5) * width
                text = f"{100 * value:.1f}" if width >= 26 else f"{100 * value:.0f}"
                parts.append(f'<text class="cell{strong}" x="{x:.1f}" y="{y + 14}" text-anchor="middle">{text}</text>')
    return figures.frame(label, LEFT + WIDTH + 4, 18 + len(rows) * ROW, parts)
