"""A few kills; the campaign has some for every process of a run."""

import pytest

from benchmarks.hostile import kills
from benchmarks.hostile.outcome import Outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "role"), [("repro", "make"), ("repro", "dvc"), ("flow", "make"), ("flow", "server"), ("flow", "dvc")]
)
def test_kill__leaves_nothing_and_the_next_run_ends_well(tmp_path, command, role):
    found = kills.kill(tmp_path / "toy", command, role, 1)
    assert found == Outcome(f"{command}: {role} after 1.0 s", "fine")
