import math

import jinja2
import pytest

from stages.core.report import page
from stages.core.report.scores import Scores


@pytest.mark.parametrize(
    ("value", "text", "trend"),
    [(1.24, "+1.2", 1), (-1.26, "−1.3", -1), (0.04, "±0.0", 0), (-0.04, "±0.0", 0), (0.06, "+0.1", 1)],
)
def test_signed__shows_the_sign_of_what_is_shown(value, text, trend):
    assert page.signed(value) == text
    assert page.trend(value) == trend


def test_signed__nothing_to_compare():
    assert page.signed(math.nan) == "–"


def test_placement__keeps_the_order_and_the_track():
    place = page.placement([12.0, 30.0, math.nan])
    assert 0 <= float(place(12.0)) < float(place(20.0)) < float(place(30.0)) <= 100


def test_render__a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        page.render("report.md.j2", {})


def test_title_of__names_known_and_single_models():
    assert page.title_of("neighbour")[0] == "Neighbour fusion"
    assert page.title_of("k64") == ("Adaptor k64", "one granularity")


def test_best_rows__none_that_saw_labels():
    values = {"k4": 40.0, "k4_whitened": 41.0, "oracle": 50.0, "supervised": 60.0, "cub-one_whitened": 70.0}
    rows = {row: {column: {"r_precision": value} for column in ("a", "mean")} for row, value in values.items()}
    table = Scores(["a"], rows, {}, {})
    assert page.best_rows(table, ["supervised", "cub-one"]) == {"mean": ["k4_whitened"], "a": ["k4_whitened"]}
    assert page.best_rows(table)["a"] == ["cub-one_whitened"]


@pytest.mark.parametrize(("value", "text"), [(1234, "+1,234"), (-49, "−49"), (0, "±0"), (None, "–")])
def test_signed_count__shows_the_sign(value, text):
    assert page.signed_count(value) == text
