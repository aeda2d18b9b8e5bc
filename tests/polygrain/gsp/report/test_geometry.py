import numpy as np

from polygrain.gsp.report.geometry import geometry, hull


def test_hull__has_the_corners_alone_and_all_points_of_a_line():
    square = [(x, y) for x in (0.0, 1.0, 2.0) for y in (0.0, 1.0, 2.0)]
    assert sorted(hull(square)) == [(0, 0), (0, 2), (2, 0), (2, 2)]
    for line in ([(1.0, 1.0), (0.0, 0.0), (1.0, 1.0)], [(1.0, 1.0)], [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]):
        assert hull(line) == line


def test_geometry__draws_every_row_and_a_hull_for_each_class():
    vectors = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    drawn = geometry("bags", vectors, np.repeat([0, 1, 2], 4), ["a", "b"])
    assert str(drawn["drawing"]).count("<circle") == 12 and str(drawn["drawing"]).count("<polygon") == 3
    assert "s-a" in str(drawn["drawing"]) and "% of the variance" in drawn["title"]
