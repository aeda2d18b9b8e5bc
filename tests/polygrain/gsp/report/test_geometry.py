import numpy as np
from scipy.spatial import ConvexHull

from polygrain.gsp.report.geometry import geometry, hull


def test_hull__is_scipys_and_of_few_points_all():
    points = np.random.default_rng(0).normal(size=(40, 2))
    corners = {tuple(points[i]) for i in ConvexHull(points).vertices}
    assert set(hull([tuple(p) for p in points])) == corners and len(hull([tuple(p) for p in points])) == len(corners)
    square = [(x, y) for x in (0.0, 1.0, 2.0) for y in (0.0, 1.0, 2.0)]
    assert len(hull(square)) == 4
    assert hull([(1.0, 1.0), (0.0, 0.0), (1.0, 1.0)]) == [(0.0, 0.0), (1.0, 1.0)]


def test_geometry__draws_every_row_and_a_hull_for_each_class():
    vectors = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    drawn = geometry("bags", vectors, np.repeat([0, 1, 2], 4), ["a", "b"])
    assert str(drawn["drawing"]).count("<circle") == 12 and str(drawn["drawing"]).count("<polygon") == 3
    assert "s-a" in str(drawn["drawing"]) and "% of the variance" in drawn["title"]
