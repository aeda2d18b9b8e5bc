"""The profiles of MPCL say what the paper, or the public code that it builds on, prints (mpcl.csv), or why not.

"code" is facebookresearch/moco at 132aea9 (MoCo v2), facebookresearch/moco-v3 at c349e6e and
facebookresearch/barlowtwins at 8e8d284, whose semi-supervised recipe the paper takes.
"""

from collections import Counter
from pathlib import Path

import pytest

from polygrain.config.items.mpcl import Pretraining
from polygrain.mpcl.report.published import Setting, matches, published_rows
from tests.helpers.printed import is_same, rows, value_of
from tests.test_profiles import composed

ROWS = rows(Path(__file__).with_name("mpcl.csv"))
# The tables that each profile answers for, and its printed rows that no run of it is: those of another batch.
PROFILES = {
    "imagenet": ({"IV", "V", "VI"}, 0),
    "imagenet-detection": ({"IV", "V", "VI"}, 0),
    "imagenet100": ({"I", "II", "III"}, 0),
    "imagenet100-barlow": ({"VII"}, 0),
    "imagenet100-vit": ({"VII"}, 2),
    "imagenet100-vit-2048": ({"VII"}, 5),
}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['profile']} {row['key']}" for row in ROWS])
def test_profile__has_the_printed_value_or_a_reason(row):
    met = value_of(row["profile"], row["key"])
    assert is_same(row["value"], met), f"{row['key']} is {met}"
    assert is_same(row["printed"], met) != bool(row["why"])


def test_rows__name_each_key_once_and_every_profile():
    assert len({(row["profile"], row["key"]) for row in ROWS}) == len(ROWS)
    assert {row["profile"] for row in ROWS} == PROFILES.keys()


def found(profile: str) -> tuple[dict[str, Pretraining], Setting]:
    values = composed(profile)
    encoder = values["mpcl_encoder"]
    setting = Setting(list(values["tasks"]), encoder["network"]["architecture"], encoder["epochs"], encoder["batch"])
    return {name: Pretraining(**run) for name, run in values["mpcl"].items()}, setting


@pytest.mark.parametrize("profile", PROFILES)
def test_published_row__meets_exactly_one_run_of_a_profile(profile):
    runs, setting = found(profile)
    tables, others = PROFILES[profile]
    met = Counter()
    for row in published_rows():
        names = [name for name, run in runs.items() if matches(row, run, setting)]
        assert len(names) <= 1 and (not names or row["table"] in tables), row
        met.update(names)
    assert met.keys() == runs.keys()  # and no run is without a printed number
    framework = next(iter(runs.values())).framework
    answered = [
        row
        for row in published_rows()
        if row["table"] in tables and row["framework"] == framework and row["task"] in setting.tasks
    ]
    assert len(answered) - met.total() == others
