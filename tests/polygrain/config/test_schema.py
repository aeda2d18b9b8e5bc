import pytest
from pydantic import TypeAdapter, ValidationError

from polygrain.config.schema import Name


@pytest.mark.parametrize("name", ["", "-a", "_a", "A", "a b", "a/b", "a.b", "ä", "a\n"])
def test_name__is_safe_in_a_path_and_a_command(name):
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)
    assert TypeAdapter(Name).validate_python("a0_-") == "a0_-"
