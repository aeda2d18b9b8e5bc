"""A share of the campaign."""

from benchmarks.hostile import locks
from benchmarks.hostile.outcome import FAILURES


def test_run__no_handwork(tmp_path):
    found = list(locks.run(60, 1, tmp_path))
    assert len(found) == 60
    assert not [outcome for outcome in found if outcome.verdict in FAILURES]
