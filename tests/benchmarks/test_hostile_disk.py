"""A share of the campaign; all of it: python -m benchmarks.hostile disk."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_run__nothing_raw_silent_hanging_or_escaped():
    command = [sys.executable, "-m", "benchmarks.hostile", "disk", "--share", "0.09", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "| disk | 6 | 0 | 6 | 0 | 0 | 0 | 0 |" in done.stdout
