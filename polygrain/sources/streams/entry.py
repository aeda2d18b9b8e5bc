"""The images of a stream, one by one."""

from typing import NamedTuple

from polygrain.store.square import Unreadable

LABEL_LETTERS = 200


class Entry(NamedTuple):
    """An image of a stream: the number of its file, its own in the file, its path, class and bytes.

    `class_name` is "" for an image without a class. The content of an image that is left out is Unreadable.
    """

    file: int
    index: int
    path: str
    class_name: str
    content: bytes | Unreadable


def label_of(value: object) -> str:
    """A class name from a value in a file, "" from None; Unreadable if it cannot be one."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Unreadable(f"its label is a {type(value).__name__}, no number or name")
    name = str(value).strip()
    if len(name) > LABEL_LETTERS or not name.isprintable():
        raise Unreadable(f"its label is longer than {LABEL_LETTERS} letters, or not printable")
    return name
