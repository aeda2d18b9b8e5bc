import pytest

from polygrain.collection.asked import has_grown


@pytest.mark.parametrize(
    ("before", "now", "grown"),
    [
        (3, 5, False),
        (3, 6, True),
        (8, 9, False),
        (8, 10, True),
        (90, 99, False),
        (90, 100, True),
        (100, 199, False),
        (100, 200, True),
        (500, 90, False),
    ],
)
def test_has_grown__to_enough_or_to_twice_as_many(before: int, now: int, grown: bool) -> None:
    """What follows from it: test_update.py."""
    assert has_grown(before, now) == grown
