"""Every profile that ships is one the stages accept once its data are there."""

import functools
import json
import subprocess
from pathlib import Path

import pytest

from pipeline.prepare import check
from polygrain.config import compose, lists
from tests.helpers.project import ROOT, copy_profile, copy_project, dvc

PROFILES = sorted(compose.listed(ROOT / "profiles"))


@functools.cache
def composed(profile: str) -> dict:
    return compose.compose(ROOT / "profiles" / profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles__only_the_data_are_missing(profile: str, tmp_path: Path) -> None:
    missing = sum("data/raw/" in path for _, path in lists.paths(composed(profile)))
    file = copy_profile(tmp_path, profile)
    check(file, inputs=False)
    if not missing:
        check(file)
        return
    with pytest.raises(ValueError, match=f" has {missing} wrong") as caught:
        check(file)
    wrong = str(caught.value).splitlines()[1 : 1 + missing]
    assert all("data/raw/" in line and "does not exist" in line for line in wrong), wrong


def test_params_diff__in_a_profile_is_what_has_changed_and_no_more(tmp_path: Path) -> None:
    """Of a list that two stages follow, DVC would show each value twice."""
    copy_project(tmp_path)
    profile = tmp_path / "profiles/mine"
    profile.mkdir(parents=True)
    for mixed in ([0, 10], [0, 5, 10]):
        (profile / "values.yaml").write_text(f"gallery: {{smoothing: {{mixed: {mixed}}}}}\n")
        compose.renew(profile)
        if mixed == [0, 10]:
            author = ["-c", "user.name=a", "-c", "user.email=a@127.0.0.1"]
            for command in (["add", "--all"], [*author, "commit", "--quiet", "--message", "mine"]):
                subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (changed,) = json.loads(dvc(profile, "params", "diff", "--json")).values()
    assert changed == {"gallery.smoothing.mixed": {"old": "[0, 10]", "new": "[0, 5, 10]"}}
