"""A share of the campaign."""

from benchmarks.hostile import shell
from benchmarks.hostile.outcome import FAILURES


def test_run__no_word_runs(tmp_path):
    found = list(shell.run(120, 1, tmp_path))
    assert len(found) >= 80
    assert not [outcome for outcome in found if outcome.verdict in FAILURES]
