"""What a stream of images is made of."""

from typing import NamedTuple

from polygrain.store.square import Unreadable

ENTRY_BYTES = 256 * 2**20
LABEL_LETTERS = 200


class Entry(NamedTuple):
    """An image of a stream: its place (the file's number, and its own in the file), its name and class, its bytes.

    `class_name` is "" where it has none. The content is Unreadable with the reason where it is to be left out.
    """

    file: int
    index: int
    path: str
    class_name: str
    content: bytes | Unreadable


def label_of(value: object) -> str:
    """A class name from what a file says of an image, "" from nothing; Unreadable for what cannot be one."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Unreadable(f"its label is a {type(value).__name__}, no number or name")
    name = str(value).strip()
    if len(name) > LABEL_LETTERS or not name.isprintable():
        raise Unreadable(f"its label is longer than {LABEL_LETTERS} letters, or not printable")
    return name
