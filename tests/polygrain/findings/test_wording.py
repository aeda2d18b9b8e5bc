import math

from polygrain.findings import wording
from polygrain.findings.scores import Scores


def test_placement__keeps_the_order_on_the_track_and_a_small_difference_small():
    place = wording.placement([12.0, 30.0, math.nan])
    assert 0 <= float(place(12.0)) < float(place(20.0)) < float(place(30.0)) <= 100
    place = wording.placement([57.1, 57.2])
    assert 0 < float(place(57.2)) - float(place(57.1)) < 5


def test_best_rows__none_that_saw_labels():
    values = {"k4": 40.0, "k4_whitened": 41.0, "oracle": 50.0, "supervised": 60.0, "cub-one_whitened": 70.0}
    rows = {row: {column: {"r_precision": value} for column in ("a", "mean")} for row, value in values.items()}
    table = Scores(["a"], rows, {}, {})
    assert wording.best_rows(table) == {"mean": ["k4_whitened"], "a": ["k4_whitened"]}
