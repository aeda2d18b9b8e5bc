"""The few numbers of a run, and its last sentence."""

import pytest

from polygrain.findings.headline import spoken


@pytest.mark.parametrize(
    ("known", "numbers"),
    [
        ({"result": {"advised": 26.7, "encoder": 22.6}, "criterion": {"encoder": 1.0, "chosen": 2.0}}, ["27", "23"]),
        ({"result": {"encoder": 22.6}, "criterion": {"encoder": 70.0, "chosen": 80.0}}, ["80", "70"]),
        ({"criterion": {}}, []),
    ],
)
def test_spoken__the_result_else_the_criterion_else_nothing(known, numbers):
    words = (spoken(known) or "").replace("(encoder ", "").replace(")", "").split()
    assert [word for word in words if word.isdigit() and word != "100"] == numbers
