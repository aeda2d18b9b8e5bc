"""A file of values as YAML, which may have come from anyone: read whole and quickly, or refused with what is wrong.

What a reader of YAML does is not bounded by the text's length: an alias may stand for ever more of it, or for the
mapping that it is in, and a thousand brackets are a thousand calls deep. So the text is gone through as events first.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

from polygrain.store.untrusted import read_text

MOST_BYTES = 2**18  # 15 times the largest file of values here
MOST_NODES = 20_000  # keys and values, an alias counted as all that it stands for: 9 times as many as there
DEEPEST = 20  # mappings within mappings; ours are 6 deep
MOST_BITS = 1024  # of a whole number: no float is larger
LONGEST_KEY = 200

Read = TypeVar("Read")


def text(file: Path, source: str | None = None) -> str:
    """What stands in a file; ValueError names it, or what it is called here, where that is no short text."""
    try:
        return read_text(file, MOST_BYTES)
    except FileNotFoundError:
        raise ValueError(f"{source or file} cannot be read: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{source or file} cannot be read: {error}") from error


def values(content: str, source: str) -> Any:
    """The values in a text; ValueError where it is no small tree of plain values with text for keys."""
    found = guarded(content, source, YAML(typ="safe").load)
    require_plain(found, source)
    return found


def guarded(content: str, source: str, load: Callable[[str], Read]) -> Read:
    """What `load` makes of a text, if that is a small tree; ValueError names the source, whatever goes wrong."""
    try:
        require_small(content)
        return load(content)
    except Exception as error:  # readers raise what comes; whatever it was, this text is what must change
        raise ValueError(f"{source} cannot be read as YAML: {error}") from error


def require_small(content: str) -> None:
    """ValueError for a text that is deeper or larger than any of ours, or has an alias within what it stands for."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []  # anchor, and how many nodes there were before it
    count = 0
    for event in YAML(typ="safe").parse(content):
        if isinstance(event, CollectionEndEvent):
            anchor, before = open_.pop()
            sizes[anchor] = count - before
            continue
        if isinstance(event, AliasEvent):
            if event.anchor in (anchor for anchor, _ in open_):
                raise ValueError(f"*{event.anchor} stands for something that it is itself a part of")
            count += sizes.get(event.anchor, 1)
        elif isinstance(event, ScalarEvent):
            count += 1
            sizes[event.anchor] = 1
        elif isinstance(event, CollectionStartEvent):
            open_.append((event.anchor, count))
            count += 1
            if len(open_) > DEEPEST:
                raise ValueError(f"more than {DEEPEST} mappings or lists stand within each other")
        if count > MOST_NODES:
            raise ValueError(f"it holds more than {MOST_NODES:,} values, aliases counted as what they stand for")


def require_plain(value: Any, source: str, place: tuple[str | int, ...] = ()) -> None:
    """ValueError for a key that is no text, and for a value that no stage takes: a date, bytes, a set."""
    if isinstance(value, dict):
        for key, item in value.items():
            require_key(key, source, place)
            require_plain(item, source, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            require_plain(item, source, (*place, index))
    elif isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ValueError(
            f"{source}: {name(place)} is a number of {value.bit_length():,} bits, which nothing here takes"
        )
    elif not isinstance(value, str | int | float | None):
        raise ValueError(
            f"{source}: {name(place)} is a {type(value).__name__}; allowed are text, numbers, true, false, null, lists "
            "and mappings: put text in quotes"
        )


def require_key(key: Any, source: str, place: tuple[str | int, ...]) -> None:
    if not isinstance(key, str):
        raise ValueError(f"{source}: {name((*place, repr(key)))} has a key that is no text: put it in quotes")
    if not key.isprintable() or len(key) > LONGEST_KEY:
        raise ValueError(f"{source}: {name((*place, ascii(key)[:LONGEST_KEY]))} is no key that anything here has")


def name(place: tuple[str | int, ...]) -> str:
    """The full name of a value."""
    return ".".join(map(str, place)) or "the whole"
