import pytest
from safetensors import SafetensorError

from polygrain.store.reading import read_json, reading


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "a file"), "there is no such file"),
        (KeyError("loss"), "it holds no 'loss'"),
        (SafetensorError("header too large"), "header too large"),
    ],
)
def test_reading__names_file_reason_and_remedy(error, reason):
    with pytest.raises(ValueError) as raised, reading("a file", "do this"):
        raise error
    assert str(raised.value) == f"a file is missing or damaged ({reason}); do this"


@pytest.mark.parametrize("mistake", [ZeroDivisionError, TypeError, AttributeError, RuntimeError])
def test_reading__lets_mistakes_of_the_program_pass(mistake):
    with pytest.raises(mistake), reading("a file", "do this"):
        raise mistake


def test_read_json__content_or_remedy(tmp_path):
    file = tmp_path / "summary.json"
    file.write_text("{")
    with pytest.raises(ValueError, match=r"summary.json is missing or damaged .*run the pipeline"):
        read_json(file)
    file.write_text('{"a": 1}')
    assert read_json(file) == {"a": 1}
