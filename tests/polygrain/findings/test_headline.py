"""The few numbers of a run, and its last sentence."""

import pytest

from polygrain.findings.headline import spoken


def measured(**result: float) -> dict[str, dict[str, float]]:
    first = {row: value + 30 for row, value in result.items()}
    return {"result": result, "first_hit": first, "criterion": {"encoder": 1.0, "recommended": 2.0}}


@pytest.mark.parametrize(
    ("known", "numbers"),
    [
        (measured(encoder=22.6, recommended=26.7), ["27", "23", "57", "53"]),
        (measured(encoder=22.6, without_training=26.7), ["27", "23", "57", "53"]),
        (measured(encoder=22.6), ["23", "53"]),
        ({"criterion": {"encoder": 70.0, "recommended": 80.0}}, ["80", "70"]),
        ({"criterion": {}}, []),
    ],
)
def test_spoken__the_result_else_the_criterion_else_nothing(known, numbers):
    words = (spoken(known) or "").replace("(encoder ", "").replace(")", "").replace(",", "").split()
    assert [word for word in words if word.isdigit() and word != "100"] == numbers
