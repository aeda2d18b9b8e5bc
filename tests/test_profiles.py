"""Every profile that ships is one the stages accept, but for the data that its reader has to bring."""

import os
from pathlib import Path

import pytest

from stages.core.runner.command import check

ROOT = Path(__file__).parent.parent
PROFILES = sorted((ROOT / "profiles").glob("*/params.yaml"))


@pytest.mark.parametrize("file", PROFILES, ids=lambda file: file.parent.name)
def test_profiles__only_the_data_are_missing(file):
    try:
        check(file)
        wrong = []
    except ValueError as error:
        wrong = str(error).splitlines()[1:]
    assert all("data/raw/" in line and line.endswith("does not exist") for line in wrong), wrong


@pytest.mark.parametrize("file", PROFILES, ids=lambda file: file.parent.name)
def test_profiles__share_the_one_graph(file):
    graph = file.parent / "dvc.yaml"
    # The link is made when a profile is first used: a plain `dvc status` would list the stages of every profile.
    assert not os.path.lexists(graph) or (graph.is_symlink() and graph.resolve() == ROOT / "dvc.yaml")
