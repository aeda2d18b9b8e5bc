"""Every profile that ships is one the stages accept once its data are there."""

import functools
import importlib
import json
from pathlib import Path

import pytest

from pipeline.prepare import STAGES, check
from polygrain.config import compose, lists
from tests.helpers.project import ROOT

PROFILES = sorted(compose.listed(ROOT / "profiles"))
FIRST = {profile.split("-")[0]: profile for profile in reversed(PROFILES)}.values()  # one of each kind


@pytest.fixture(autouse=True, scope="module")
def stages() -> None:
    """They are loaded before a test's seconds count."""
    for stage in STAGES:
        importlib.import_module(f"stages.{stage}")


@functools.cache
def composed(profile: str) -> dict:
    return compose.compose(ROOT / "profiles" / profile)


@pytest.mark.parametrize(
    "profile", [pytest.param(one, marks=[pytest.mark.slow] * (one not in FIRST)) for one in PROFILES]
)
def test_profiles__only_the_data_are_missing(profile: str, tmp_path: Path) -> None:
    missing = sum("data/raw/" in path for _, path in lists.paths(composed(profile)))
    file = tmp_path / "profiles" / profile / "params.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(composed(profile)))  # which is YAML, too
    for shared in ("versions.yaml", "encoders"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    check(file, inputs=not missing)
    if not missing:
        return
    with pytest.raises(ValueError, match=f" has {missing} wrong") as caught:
        check(file)
    wrong = str(caught.value).splitlines()[1 : 1 + missing]
    assert all("data/raw/" in line and "does not exist" in line for line in wrong), wrong


def test_profiles__fig_3b_has_runs_of_the_collage_and_the_same_values() -> None:
    few, all_ = composed("gsp-cifar-fig3b"), composed("gsp-cifar-collage")
    assert few["gsp_runs"].items() <= all_["gsp_runs"].items() and len(few["gsp_runs"]) == 8
    assert few["gsp_folds"] == all_["gsp_folds"] and few["gsp_collages"] == all_["gsp_collages"]
