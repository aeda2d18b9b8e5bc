"""What the GSP profiles say is what the paper prints (gsp.csv; profile "-" is the root), or the row says why not."""

from pathlib import Path

import pytest

from polygrain.config import compose
from tests.helpers.printed import ROOT, is_same, rows, value_of

ROWS = rows(Path(__file__).with_name("gsp.csv"))
PROFILES = sorted({row["profile"] for row in ROWS})


@pytest.mark.parametrize("profile", PROFILES)
def test_profile__has_the_printed_values_or_a_reason(profile: str) -> None:
    own = [row for row in ROWS if row["profile"] == profile]
    met = {row["key"]: value_of(profile, row["key"]) for row in own}
    assert len(met) == len(own)
    assert not {row["key"]: met[row["key"]] for row in own if not is_same(row["value"], met[row["key"]])}
    unexplained = [row["key"] for row in own if not is_same(row["printed"], met[row["key"]]) and not row["why"]]
    assert not unexplained
    assert not [row["key"] for row in own if is_same(row["printed"], met[row["key"]]) and row["why"]]


def test_rows__speak_of_every_profile() -> None:
    shipped = {name for name in compose.listed(ROOT / "profiles") if name.startswith("gsp-")}
    shipped -= {name for name in shipped if name.startswith(("gsp-photographs", "gsp-collages"))}  # studies of our own
    assert {row["profile"] for row in ROWS} == shipped | {"-"}
