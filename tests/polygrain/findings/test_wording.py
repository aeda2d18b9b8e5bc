import math
from dataclasses import replace

import pytest

from polygrain.findings import wording
from polygrain.findings.chosen import CandidateRow
from polygrain.findings.scores import Scores


def test_placement__keeps_the_order_on_the_track_and_a_small_difference_small():
    place = wording.placement([12.0, 30.0, math.nan])
    assert 0 <= float(place(12.0)) < float(place(20.0)) < float(place(30.0)) <= 100
    place = wording.placement([57.1, 57.2])
    assert 0 < float(place(57.2)) - float(place(57.1)) < 5


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("neighbour", "Neighbour fusion"),
        ("k64", "Adaptor k64"),
        ("encoder_whitened", "Frozen encoder, whitened"),
        ("cub-one_whitened", "Supervised on cub, whitened"),
        ("far_views", "Far views fusion"),
        ("distilled_encoder", "Distilled encoder"),
        ("distilled_average", "Distilled average fusion"),
    ],
)
def test_title_of__names_every_kind_of_model(row, name):
    assert wording.title_of(row).name == name


def test_best_rows__none_that_saw_labels():
    values = {"k4": 40.0, "k4_whitened": 41.0, "oracle": 50.0, "supervised": 60.0, "cub-one_whitened": 70.0}
    rows = {row: {column: {"r_precision": value} for column in ("a", "mean")} for row, value in values.items()}
    table = Scores(["a"], rows, {}, {})
    assert wording.best_rows(table, ["supervised", "cub-one"]) == {"mean": ["k4_whitened"], "a": ["k4_whitened"]}
    assert wording.best_rows(table)["a"] == ["cub-one_whitened"]


def test_form_of__names_what_differs_from_the_plain_model():
    plain = CandidateRow("encoder", "encoder", 1.0, 1.0, False, 1, "none", None, 1.0, 50.0, 50.0, "", False, {})
    assert wording.form_of(plain) == "Frozen encoder"
    most = replace(plain, model="k8", strength=0.75, scale=1.5, is_mirrored=True, blocks=2, layer="full", dim=64)
    assert wording.form_of(most) == (
        "Adaptor k8 at 0.75 of its strength, its input 1.5 times as wide, averaged with the mirror image, "
        "what its last 2 blocks give side by side, whitened to 64 dimensions"
    )
    assert wording.form_of(replace(plain, layer="own", dim=64)) == "Frozen encoder, with the last layer it learnt"
