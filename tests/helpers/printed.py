"""What a paper prints beside what a profile says."""

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML

from tests.helpers.project import ROOT
from tests.test_profiles import composed


def rows(file: Path) -> list[dict[str, str]]:
    """The printed values: profile, key, our value, section, the printed value, and why where they differ."""
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@functools.cache
def root() -> dict:
    return YAML(typ="safe").load((ROOT / "params.yaml").read_text())


def value_of(profile: str, key: str) -> object:
    """A value of a composed profile, by its full key, in lists by position; profile "-" is the root's params.yaml.

    Of `gsp_trainings` the number of repeats of each fold.
    """
    found = root() if profile == "-" else composed(profile)
    for name in key.split("."):
        found = dict(enumerate(found)) if isinstance(found, list) else found
        name = int(name) if name.isdecimal() else name
        assert isinstance(found, Mapping) and name in found, f"{profile} has no {key}"
        found = found[name]
    return len({item["repeat"] for item in found.values()}) if key == "gsp_trainings" else found


def is_same(text: str, value: object) -> bool:
    """Whether a printed value is this one, numbers compared as numbers."""
    if isinstance(value, str | bool):
        return text == str(value)
    try:
        return float(text) == value
    except ValueError:
        return False
