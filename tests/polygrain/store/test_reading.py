import csv

import pytest
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError

from polygrain.store.reading import read_json, reading


def test_reading__lets_a_whole_file_pass():
    with reading("a file", "do this"):
        value = 3
    assert value == 3


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "a file"), "there is no such file"),
        (KeyError("loss"), "it holds no 'loss'"),
        (SafetensorError("header too large"), "header too large"),
        (csv.Error("unexpected end of data"), "unexpected end of data"),
    ],
)
def test_reading__says_which_file_what_is_wrong_and_what_to_do(error, said):
    with pytest.raises(ValueError) as raised, reading("a file", "do this"):
        raise error
    assert str(raised.value) == f"a file is missing or damaged ({said}); do this"
    assert raised.value.__cause__ is error


def test_reading__lists_wrong_keys_in_one_line():
    class Pair(BaseModel):
        model_config = ConfigDict(extra="forbid")
        first: int
        second: int

    with pytest.raises(ValueError) as raised, reading("a file", "do this"):
        Pair.model_validate_json('{"a": 1, "b": 2, "second": "x"}')
    said = str(raised.value)
    assert said.startswith("a file is missing or damaged (first: Field required; second: Input should be a valid inte")
    assert said.endswith("a: Extra inputs are not permitted; and 1 more); do this") and "\n" not in said


def test_reading__leaves_mistakes_of_the_program_alone():
    with pytest.raises(ZeroDivisionError), reading("a file", "do this"):
        raise ZeroDivisionError


def test_read_json__what_was_written_or_the_remedy(tmp_path):
    file = tmp_path / "run" / "summary.json"
    file.parent.mkdir()
    with pytest.raises(ValueError, match=r"summary.json is missing or damaged .*; delete .*run and run the pipeline"):
        read_json(file)
    file.write_text("{")
    with pytest.raises(ValueError, match=r"summary.json is missing or damaged .Expecting property name"):
        read_json(file)
    file.write_text('{"a": 1}')
    assert read_json(file) == {"a": 1}
