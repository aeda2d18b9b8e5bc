"""A toy of each kind of variant, by the places alone that CONTRIBUTING names, in a copy of the project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.project import ENVIRONMENT, ROOT, copy_project
from tests.helpers.variants import TOYS

CHECKS, LOSSES = "tests/helpers/variant_checks.py::", "tests/polygrain/losses/test_metric.py::"
DATA_SETS, POOLINGS = "tests/polygrain/sources/datasets/test_load.py::", "tests/polygrain/gsp/poolings/test_build.py::"
STALE = "tests/pipeline/test_staleness.py::test_sources__make_the_stages_stale_that_import_them"
# The number of places of each kind, beside templates and tests, and what must pass in a copy with all toys.
KINDS: dict[str, tuple[int, list[str]]] = {
    "an image source": (
        1,
        [
            CHECKS + "test_source",
            "tests/test_sources_and_doors.py::test_new_and_run__the_same_images_of_every_source[toy]",
        ],
    ),
    "a public data set": (
        1,
        [CHECKS + "test_data_set", DATA_SETS + "test_load__sorted_by_class_with_a_class_disjoint_half[toy_set]"],
    ),
    "an encoder family": (2, [CHECKS + "test_family"]),
    "a pooling": (2, [CHECKS + "test_pooling", POOLINGS + "test_build__equals_its_twin[toy]"]),
    "a metric-learning loss": (1, [CHECKS + "test_loss", LOSSES + "test_known__each_loss_has_a_test_by_its_name"]),
    "a fusion": (2, [CHECKS + "test_fusion"]),
    "a baseline": (2, [CHECKS + "test_baseline"]),
    "a stage": (3, [CHECKS + "test_stage", STALE, "tests/test_architecture.py"]),
    "a row of the results table": (1, [CHECKS + "test_row"]),
    "a section of the report": (2, [CHECKS + "test_section"]),
    "a command": (2, ["tests/polygrain/cli/test_main.py"]),
    "an export target": (2, [CHECKS + "test_target"]),
}


def add(folder: Path, files: dict[str, str | dict[str, str]]) -> None:
    for place, changes in files.items():
        file = folder / place
        if isinstance(changes, str):
            assert not file.exists(), f"{place} is there without the toy"
            file.write_text(changes.lstrip("\n"), encoding="utf-8")
            continue
        text = file.read_text(encoding="utf-8")
        for before, new in changes.items():
            assert text.count(before) == 1, f"{place}: {before!r} is not there once"
            text = text.replace(before, new.lstrip("\n") + before)
        file.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the checks say in a copy with all toys."""
    folder = tmp_path_factory.mktemp("copy") / "project"
    copy_project(folder)
    for name in ("tests", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy2(ROOT / name, folder / name)
    for toy in TOYS.values():
        add(folder, toy)
    words = [sys.executable, "-m"], {"cwd": folder, "env": ENVIRONMENT, "capture_output": True, "text": True}
    subprocess.run([*words[0], "pipeline.entries"], **words[1], check=True)  # make graph
    tests = [test for _, tests in KINDS.values() for test in tests]
    done = subprocess.run([*words[0], "pytest", "-q", "-rpfE", "--tb=short", *tests], **words[1])
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_contributing__names_the_places_of_a_toy(kind: str) -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {kind} \| (.+) \|$", table, re.M)
    named = [re.sub("<name>", "toy", path) for path in re.findall(r"`([\w./<>]+\.(?:py|yaml|j2))`", row)]
    assert sorted(named) == sorted(TOYS[kind])
    assert len([place for place in named if not place.startswith("tests/") and "j2" not in place]) == KINDS[kind][0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_toy__works_by_these_places(outcomes: str, kind: str) -> None:
    for test in KINDS[kind][1]:
        assert f"\nPASSED {test}" in outcomes and f"\nFAILED {test}" not in outcomes, outcomes
