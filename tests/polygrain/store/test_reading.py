import pytest
from safetensors import SafetensorError

from polygrain.store.reading import read_json, read_lines, reading


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


def test_read_json__content_or_remedy(tmp_path):
    file = tmp_path / "summary.json"
    file.write_text("{")
    with pytest.raises(ValueError, match=r"summary.json is missing or damaged .*run the pipeline"):
        read_json(file)
    file.write_text('{"a": 1}')
    assert read_json(file) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\r\nb \r\n", ["a", "b "]),
        ("a\u2028b\u0085c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce\x1cf"]),
    ],
)
def test_read_lines__as_an_editor_shows_them(tmp_path, content, lines):
    (tmp_path / "a.txt").write_bytes(content)
    assert read_lines(tmp_path / "a.txt", "do this") == lines


def test_read_lines__of_another_encoding(tmp_path):
    (tmp_path / "a.txt").write_text("a", encoding="utf-16")
    with pytest.raises(ValueError, match=r"a.txt is missing or damaged .*; do this"):
        read_lines(tmp_path / "a.txt", "do this")
