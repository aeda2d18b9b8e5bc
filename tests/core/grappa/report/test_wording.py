import math

from stages.core.grappa.report import wording
from stages.core.grappa.report.scores import Scores


def test_placement__keeps_the_order_and_the_track():
    place = wording.placement([12.0, 30.0, math.nan])
    assert 0 <= float(place(12.0)) < float(place(20.0)) < float(place(30.0)) <= 100


def test_title_of__names_known_and_single_models():
    assert wording.title_of("neighbour").name == "Neighbour fusion"
    assert wording.title_of("k64") == ("Adaptor k64", "one granularity")
    assert wording.title_of("encoder_whitened") == ("Frozen encoder, whitened", "what you start from")
    assert wording.title_of("cub-one_whitened").name == "Supervised on cub, whitened"
    assert wording.title_of("far_views") == ("Far views fusion", "one model")


def test_best_rows__none_that_saw_labels():
    values = {"k4": 40.0, "k4_whitened": 41.0, "oracle": 50.0, "supervised": 60.0, "cub-one_whitened": 70.0}
    rows = {row: {column: {"r_precision": value} for column in ("a", "mean")} for row, value in values.items()}
    table = Scores(["a"], rows, {}, {})
    assert wording.best_rows(table, ["supervised", "cub-one"]) == {"mean": ["k4_whitened"], "a": ["k4_whitened"]}
    assert wording.best_rows(table)["a"] == ["cub-one_whitened"]
