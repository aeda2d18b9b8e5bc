"""What profiles claim to have from TLL's paper, against `tll.csv`: a row per printed value.

`value` is what the composed profile (none: the root's params.yaml) must say, `printed` what the paper or its code says,
both as JSON. Where they differ, `why` gives the reason, and nowhere else.
"""

import json
from pathlib import Path

import pytest

from polygrain.config import compose
from polygrain.tll.extractors import published
from tests.helpers.printed import rows, value_of
from tests.helpers.project import ROOT
from tests.test_profiles import composed

ROWS = rows(Path(__file__).with_name("tll.csv"))
PROFILES = sorted(name for name in compose.listed(ROOT / "profiles") if name.startswith("tll-obj"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['profile'] or 'root'} {row['key']}")
def test_value__is_the_printed_one_or_says_why(row):
    value, printed = json.loads(row["value"]), json.loads(row["printed"])
    assert value_of(row["profile"] or "-", row["key"]) == value
    assert bool(row["why"]) == (value != printed)


def test_rows__every_profile_has_some():
    assert {row["profile"] for row in ROWS} == {"", *PROFILES}


@pytest.mark.parametrize("suffix", ["", "-train"])
def test_profiles__cover_each_extractor_once_with_the_preparation_of_its_network(suffix):
    """Table 1 less the row that no library has; CLIP's networks are prepared as CLIP does, the others squashed."""
    covered = {}
    for profile in [*(f"tll-obj{part}{suffix}" for part in ("", "-clip", "-clip-288")), "tll-obj-files"]:
        found = composed(profile)
        for study in found["tll"].values():
            assert study["extractor"] not in covered and study["listed"] == "TLL_obj.csv"
            covered[study["extractor"]] = (found["tll_pairs"]["side"], found["tll_pairs"]["shape"])
    known = published.published()
    assert covered == {
        name: (extractor.side, "crop" if name.startswith("clip_") else "squash") for name, extractor in known.items()
    }
