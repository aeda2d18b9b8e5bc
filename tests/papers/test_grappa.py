"""The profile `mrt` says what the paper prints (grappa.csv), or the row says why not."""

from pathlib import Path

import pytest

from tests.helpers.printed import is_same, rows, value_of

ROWS = rows(Path(__file__).with_name("grappa.csv"))


def met(row):
    value = value_of(row["profile"], row["key"])
    return " ".join(name.removeprefix("k") for name in value) if row["key"] == "granularities" else value


@pytest.mark.parametrize("row", ROWS, ids=[row["key"] for row in ROWS])
def test_profile__has_the_printed_value_or_a_reason(row):
    assert is_same(row["value"], met(row)), f"{row['key']} is {met(row)}"
    assert is_same(row["printed"], met(row)) != bool(row["why"])


def test_rows__name_each_key_once():
    assert len({(row["profile"], row["key"]) for row in ROWS}) == len(ROWS)
