import pytest

from polygrain.compute.errors import first_line


@pytest.mark.parametrize(
    ("text", "expected"), [("full\nof it", "full"), ("\n full ", "full"), (" \n", "ValueError"), ("", "ValueError")]
)
def test_first_line__of_an_error_without_text_is_its_kind(text, expected):
    assert first_line(ValueError(text)) == expected
