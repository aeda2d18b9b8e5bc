import re

from polygrain.tll.report.recall_curves import Curve, recall_curves


def points(drawn: str, kind: str) -> list[list[tuple[float, float]]]:
    found = re.findall(rf'<{kind} class="[^"]*" points="([^"]*)"', drawn)
    return [[tuple(map(float, point.split(","))) for point in one.split()] for one in found]


def test_recall_curves__bands_enclose_the_lines():
    curves = [
        Curve("a <b>", "s-pca", [10.0, 40.0, 90.0], [2.0, 5.0, 1.0]),
        Curve("c", "s-high", [20.0, 60.0, 97.0], [1.0] * 3),
    ]
    drawn = str(recall_curves("label", curves))
    assert "a &lt;b&gt;" in drawn and "<b>" not in drawn
    lines, bands = points(drawn, "polyline"), points(drawn, "polygon")
    assert len(lines) == len(bands) == 2
    for line, band in zip(lines, bands, strict=True):
        upper, lower = band[:3], band[3:][::-1]
        for (x, y), (x_high, high), (x_low, low) in zip(line, upper, lower, strict=True):
            assert x == x_high == x_low and high < y < low  # y runs downwards
    heights = [y for _, y in lines[0]]
    scale = (heights[0] - heights[1]) / 30
    assert abs((bands[0][5][1] - bands[0][0][1]) - 4 * 2 * scale) < 0.2  # four deviations, of 2 % each
