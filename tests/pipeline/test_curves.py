"""Pictures of curves: what a person reads off them is where it should be."""

import base64
import re
from xml.etree import ElementTree

import pytest

from pipeline import curves
from pipeline.progress import Point, Progress

SVG = "{http://www.w3.org/2000/svg}"


def read(drawing: str) -> list[dict]:
    """The panels of a drawing: name, last value, and the points of the curve."""
    found = []
    for panel in ElementTree.fromstring(drawing).iter(f"{SVG}g"):
        texts = {text.get("class"): text.text for text in panel.iter(f"{SVG}text")}
        line = panel.find(f"{SVG}polyline").get("points")
        found.append(texts | {"points": [tuple(map(float, pair.split(","))) for pair in line.split()]})
    return found


def test_drawing__a_panel_each_with_its_ends_on_the_frame():
    loss = [Point(0.5, 5, 2.0), Point(1, 10, 1.5), Point(2, 20, 1.0)]
    first, second = read(curves.drawing({"loss": loss, "a < b": [Point(1, 10, 0.3)]}))
    assert (first["name"], first["now"], first["high"], first["low"], first["last"]) == ("loss", "1", "2", "1", "2")
    floor, width = curves.HEIGHT - curves.BOTTOM, curves.WIDTH - curves.LEFT - curves.RIGHT
    middle = (curves.TOP + floor) / 2
    xs, ys = zip(*first["points"], strict=True)
    assert xs == pytest.approx([curves.LEFT + width * share for share in (0.25, 0.5, 1)], abs=0.06)
    assert ys == pytest.approx([curves.TOP, middle, floor], abs=0.06)
    # A curve that does not move lies in the middle, and has one number.
    assert second["name"] == "a < b" and "low" not in second
    assert second["points"] == [(curves.LEFT + width, middle)]


def test_drawing__what_no_number_can_be_breaks_nothing():
    curves.drawing({"loss": [Point(0, 0, 1.0)], "other": [Point(1, 1, float("inf")), Point(2, 2, 1.0)]})


def test_markdown__the_line_the_picture_and_the_numbers():
    progress = Progress()
    for line in ("epoch 1/3: 2 of 2, loss 2, accuracy 0.5", "epoch 2/3: 2 of 2, 4 s left, loss 1, accuracy 0.75"):
        progress.hear(line)
    said = curves.markdown("adaptor@k8", progress)
    assert said.startswith("**adaptor@k8** · epoch 2/3: 2 of 2, 4 s left, loss 1, accuracy 0.75\n\n![loss, accuracy](")
    assert "| loss | 1 | 1 | 2 |" in said and "| accuracy | 0.75 | 0.5 | 0.75 |" in said
    (coded,) = re.findall(r"data:image/svg\+xml;base64,([^)]+)", said)
    assert len(read(base64.b64decode(coded).decode())) == 2


def test_markdown__of_many_curves_those_that_came_last():
    progress = Progress()
    for fold in range(20):
        progress.hear(f"run-{fold}, validation 1/1: loss 1")
    assert curves.markdown("gsp_folds@run", progress).count("| run-") == curves.MOST_PANELS
    assert "| run-19 loss |" in curves.markdown("gsp_folds@run", progress)
