import pytest

from polygrain.sources.streams.entry import label_of
from polygrain.store.rectangle import Unreadable


def test_label_of__numbers_and_names():
    values = (7, " cat\n", "", None, 3.0, float("nan"), True)
    assert [label_of(value) for value in values] == ["7", "cat", "", "", "3", "", "True"]


@pytest.mark.parametrize("value", [1.5, ["a"], "x" * 201, "a\nb", "a\0b"])
def test_label_of__raise_on_what_is_none(value):
    with pytest.raises(Unreadable, match="its label is"):
        label_of(value)
