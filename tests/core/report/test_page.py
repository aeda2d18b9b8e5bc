import math

import jinja2
import pytest

from stages.core.report import page


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
