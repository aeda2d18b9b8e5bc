import pytest
from pydantic import TypeAdapter, ValidationError

from polygrain.config.schema import Name, Section


class One(Section):
    value: int


def test_section__refuses_unknown_keys_bent_types_and_changes():
    for given in ({"value": 1, "other": 2}, {"value": "1"}, {"value": 1.0}, {}):
        with pytest.raises(ValidationError):
            One.model_validate(given)
    made = One(value=1)
    with pytest.raises(ValidationError, match="frozen"):
        made.value = 2


@pytest.mark.parametrize("name", ["", "-a", "_a", "A", "a b", "a/b", "a.b", "ä", "a\n"])
def test_name__is_safe_in_a_path_and_a_command(name):
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)
    assert TypeAdapter(Name).validate_python("a0_-") == "a0_-"
