"""A share of the campaign; all of it: python -m benchmarks.hostile disk."""

import pytest

from benchmarks.hostile import disk
from benchmarks.hostile.outcome import FAILURES


@pytest.mark.slow
def test_run__nothing_raw_silent_hanging_or_escaped(tmp_path):
    found = list(disk.run(12, 7, tmp_path))
    assert len(found) == 12
    assert not [outcome for outcome in found if outcome.verdict in FAILURES]
