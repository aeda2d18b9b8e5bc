"""What a paper prints beside what a profile says."""

import csv
from collections.abc import Mapping
from pathlib import Path

from tests.test_profiles import composed


def rows(file: Path) -> list[dict[str, str]]:
    """The printed values: profile, key, our value, section, the printed value, and why where they differ."""
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def value_of(profile: str, key: str) -> object:
    found = composed(profile)
    for name in key.split("."):
        assert isinstance(found, Mapping) and name in found, f"{profile} has no {key}"
        found = found[name]
    return found


def is_same(text: str, value: object) -> bool:
    """Whether a printed value is this one, numbers compared as numbers."""
    if isinstance(value, (str, bool)):
        return text == str(value)
    try:
        return float(text) == value
    except ValueError:
        return False
