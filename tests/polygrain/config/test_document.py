import os

import pytest

from polygrain.config import document

BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))


def test_values__are_what_stands_there():
    text = "a: &a {x: 1e-3, y: [1, true, null]}\nb: *a\nc: {<<: *a, z: t}\n"
    inner = {"x": 0.001, "y": [1, True, None]}
    assert document.values(text, "p") == {"a": inner, "b": inner, "c": inner | {"z": "t"}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &a [*a]", r"\*a stands for something that it is itself a part of"),
        ("a: &a {<<: *a}", "it is itself a part of"),
        (BOMB, "more than 20,000 values, aliases counted"),
        ("[" * 100_000, "more than 20 mappings or lists"),
        ("- " * 100_000, "more than 20 mappings or lists"),
        ("a: [" + "1," * 30_000 + "]", "more than 20,000 values"),
        ("images: {1: x}", "images.1 has a key that is no text: put it in quotes"),
        ("{[1]: x}", "a key that is no text"),
        ("null: x", "None has a key that is no text"),
        (r'"\e[2J": x', r"'\\x1b\[2J' is no key"),
        ("a: {b: 2001-01-01}", "a.b is a date; allowed are text"),
        ("a: !!binary aGk=", "a is a bytes"),
        ("a: " + "9" * 5000, "p cannot be read as YAML"),
        ("a: 0x" + "F" * 5000, "a is a number of 20,000 bits"),
        ("a: 1\na: 2", "(?s)cannot be read as YAML.*duplicate key"),
        ("a: !!python/name:os.system", "cannot be read as YAML"),
    ],
)
def test_values__refuses_what_is_no_small_tree_of_plain_values(text, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        document.values(text, "p")
    assert str(caught.value).startswith("p") and len(str(caught.value)) < 1000


def test_text__names_the_file(tmp_path):
    os.mkfifo(tmp_path / "params.yaml")
    with pytest.raises(ValueError, match=r"params.yaml cannot be read: it is a pipe"):
        document.text(tmp_path / "params.yaml")
    with pytest.raises(ValueError, match=r"values.yaml cannot be read: there is no such file"):
        document.text(tmp_path / "none.yaml", "values.yaml")
