import pytest

from polygrain.sources import kind


def test_assign__first_half_rounded_up_trains_and_unseen_only_tests() -> None:
    assert [*kind.assign(["a", "b", "c"]).values()] == [(0, "a", "train"), (1, "b", "train"), (2, "c", "test")]
    assert kind.assign([""]) == {"": (-1, "", "train")}
    assert kind.assign(["a", "b"], unseen=True) == {"a": (0, "a", "test"), "b": (1, "b", "test")}
    with pytest.raises(ValueError, match="flat folder has no labels"):
        kind.assign([""], unseen=True)
