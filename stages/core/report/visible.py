"""Names of files and folders as a page can show them: what has no picture of its own is written as an escape."""

import unicodedata

# Control characters, lone surrogates, separators of lines, and what turns the reading direction or has no width; but
# the joiner that makes one emoji of several.
UNSEEN = ("Cc", "Cs", "Zl", "Zp", "Cf")
JOINER = "\u200d"


def visible(name: str) -> str:
    """The name on one line, in the order it is stored in: a carriage return as \\r, a right-to-left mark as \\u200f."""
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter) in UNSEEN and letter != JOINER
        else letter
        for letter in name
    )
