"""The images of a stream, one by one."""

import math
from typing import NamedTuple

from polygrain.sources import folder
from polygrain.store.rectangle import Unreadable

LABEL_LETTERS = 200
# Of a column of a table, or a key of a .json file, that may hold the label: the first that is there.
NAMES = ("label", "labels", "fine_label", "class_name", "class", "cls", "category")


class Entry(NamedTuple):
    """An image of a stream: the number of its file, its own in the file, its path, class and bytes.

    `class_name` is "" for an image without a class. The content of an image that is left out is Unreadable.
    """

    file: int
    number: int
    path: str
    class_name: str
    content: bytes | Unreadable


def label_of(value: object) -> str:
    """A class name from a value in a file, "" from None; Unreadable if it cannot be one."""
    if isinstance(value, float) and (math.isnan(value) or value.is_integer()):
        value = None if math.isnan(value) else int(value)  # pandas writes whole numbers so where some are missing
    if value is None:
        return ""
    if not isinstance(value, bool | int | str):
        raise Unreadable(f"its label is a {type(value).__name__}, no number or name")
    name = folder.composed(str(value).strip())
    if len(name) > LABEL_LETTERS or not name.isprintable():
        raise Unreadable(f"its label is longer than {LABEL_LETTERS} letters, or not printable")
    return name
