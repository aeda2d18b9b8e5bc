"""Names of files and folders as a page can show them: characters without a glyph are escaped."""

import unicodedata

# Control characters, lone surrogates, separators of lines, and what turns the reading direction or has no width.
UNSEEN = ("Cc", "Cs", "Zl", "Zp", "Cf")
JOINER = "\u200d"  # makes one emoji of several


def visible(name: str) -> str:
    """The name on one line, in the order it is stored in: a carriage return as \\r, a right-to-left mark as \\u200f.

    A backslash is doubled, so that names that differ look different.
    """
    return "".join(escaped(letter) for letter in name)


def escaped(letter: str) -> str:
    if letter == "\\" or (unicodedata.category(letter) in UNSEEN and letter != JOINER):
        return letter.encode("unicode_escape").decode()
    return letter
