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


def test_render__a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        page.render("grappa/report/report.md.j2", {})


@pytest.mark.parametrize(("value", "text"), [(1234, "+1,234"), (-49, "−49"), (0, "±0"), (None, "–")])
def test_signed_count__shows_the_sign(value, text):
    assert page.signed_count(value) == text
