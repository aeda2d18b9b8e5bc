import unicodedata

import pytest

from polygrain.report.visible import visible


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b.png", "a b.png"),
        ("a\rb", r"a\rb"),
        (r"a\rb", r"a\\rb"),
        ("\x1b[2J\x7f\x85", r"\x1b[2J\x7f\x85"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\u2066a\u2069\u200f\ufeff", r"\u2066a\u2069\u200f\ufeff"),
        ("\udcff", r"\udcff"),
        ("\u05d0 é 中 \U0001f600", "\u05d0 é 中 \U0001f600"),
        ("\U0001f469\u200d\U0001f467", "\U0001f469\u200d\U0001f467"),
    ],
)
def test_visible__what_has_no_picture_is_an_escape(name, shown):
    assert visible(name) == shown


def test_visible__every_control_character_and_nothing_that_can_be_seen():
    for letter in map(chr, range(0x3000)):
        hidden = letter == "\\" or (unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") and letter != "\u200d")
        assert (visible(letter) != letter) == hidden, hex(ord(letter))
