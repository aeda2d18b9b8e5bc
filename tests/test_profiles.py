"""Every profile that ships is one the stages accept once its data are there."""

import functools
from pathlib import Path

import pytest

from pipeline.prepare import check
from polygrain.config import compose, lists
from tests.helpers.project import ROOT, copy_profile

PROFILES = sorted(file.parent.name for file in (ROOT / "profiles").glob("*/values.yaml"))


@functools.cache
def composed(profile: str) -> dict:
    return compose.compose(ROOT / "profiles" / profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles__only_the_data_are_missing(profile: str, tmp_path: Path) -> None:
    missing = sum("data/raw/" in path for _, path in lists.paths(composed(profile)))
    if profile == "gsp-studies":
        check(copy_profile(tmp_path, profile))
        return
    with pytest.raises(ValueError) as caught:
        check(copy_profile(tmp_path, profile))
    wrong = str(caught.value).splitlines()[1:]
    assert len(wrong) == missing > 0
    assert all("data/raw/" in line and line.endswith("does not exist") for line in wrong), wrong
