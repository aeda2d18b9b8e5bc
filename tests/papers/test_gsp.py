"""What the GSP profiles say is what the paper prints (gsp.csv; profile "-" is the root), or the row says why not."""

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.helpers.project import ROOT
from tests.test_profiles import composed

with Path(__file__).with_name("gsp.csv").open(newline="", encoding="utf-8") as lines:
    ROWS = list(csv.DictReader(lines))
PROFILES = sorted({row["profile"] for row in ROWS})


def value_of(profile: str, key: str) -> object:
    found = YAML(typ="safe").load((ROOT / "params.yaml").read_text()) if profile == "-" else composed(profile)
    for name in key.split("."):
        assert isinstance(found, Mapping) and name in found, f"{profile} has no {key}"
        found = found[name]
    return found


def is_same(text: str, value: object) -> bool:
    """Whether a printed value is this one, numbers compared as numbers."""
    if isinstance(value, str):
        return text == value
    try:
        return float(text) == value
    except ValueError:
        return False


@pytest.mark.parametrize("profile", PROFILES)
def test_profile__has_the_printed_values_or_a_reason(profile: str) -> None:
    rows = [row for row in ROWS if row["profile"] == profile]
    met = {row["key"]: value_of(profile, row["key"]) for row in rows}
    assert len(met) == len(rows)
    assert not {row["key"]: met[row["key"]] for row in rows if not is_same(row["value"], met[row["key"]])}
    unexplained = [row["key"] for row in rows if not is_same(row["printed"], met[row["key"]]) and not row["why"]]
    assert not unexplained
    assert not [row["key"] for row in rows if is_same(row["printed"], met[row["key"]]) and row["why"]]


def test_rows__speak_of_every_profile() -> None:
    shipped = {file.parent.name for file in (ROOT / "profiles").glob("gsp-*/values.yaml")}
    assert {row["profile"] for row in ROWS} == shipped | {"-"}
