import itertools
import math
import re

import numpy as np
import pytest

from polygrain.report import figures
from polygrain.report.figures import Line


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (17.5, 18.3), (46.5, 46.5), (-3.0, 120.0), (0.0, 0.0), (1e-6, 2e-6)]
)
def test_ticks__enclose_the_values_in_even_round_steps(low, high):
    marks = figures.ticks(low, high)
    assert marks[0] <= low + 1e-9 and marks[-1] >= high - 1e-9
    assert 2 <= len(marks) <= 8
    assert max(len(figures.tick_text(mark, marks[1] - marks[0])) for mark in marks) <= 9  # what the axis has room for
    steps = {f"{b - a:.3g}" for a, b in itertools.pairwise(marks)}
    assert len(steps) == 1 and re.match(r"[125]", f"{float(steps.pop()):e}")


def test_pushed_apart__keeps_order_gap_and_bounds():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = (rng.random(6) * 100).tolist()
        placed = figures.pushed_apart(values, 13.0, 0.0, 100.0)
        assert np.array_equal(np.argsort(placed), np.argsort(values))
        assert np.diff(np.sort(placed)).min() > 13 - 1e-9
        assert min(placed) > -1e-9 and max(placed) < 100 + 1e-9


def test_line_chart__leaves_out_what_has_no_value():
    lines = [Line("gone", "s-k", [(0.0, math.nan)]), Line("kept", "s-k", [(0.0, 1.0), (1.0, math.nan), (2.0, 3.0)])]
    drawn = figures.line_chart("label", lines, x_ticks=[(0.0, "0"), (2.0, "2")], x_label="x", y_label="y")
    assert "gone" not in drawn and "kept" in drawn and "nan" not in drawn
    assert drawn.count("<circle") == 2
    assert figures.line_chart("label", lines[:1], x_ticks=[(0.0, "0")], x_label="x", y_label="y") == ""


def test_line_chart__names_are_escaped():
    drawn = figures.line_chart(
        '"<b>', [Line("<i>", "s-k", [(0.0, 1.0)])], x_ticks=[(0.0, "<u>")], x_label="<x>", y_label="<y>"
    )
    assert not re.search(r"<[biuxy]>", drawn)


def test_heat_map__hue_tells_the_side_and_opacity_the_distance():
    drawn = figures.heat_map("label", ["k2", "k4"], ["1"], [[0.5], [0.4]], centre=0.45, limit=0.1)
    assert re.findall(r'class="heat (\w+)".*?fill-opacity="([0-9.]+)"', drawn) == [("more", "0.500"), ("less", "0.500")]
    assert "k4, layer 1: 40.0 %" in drawn
