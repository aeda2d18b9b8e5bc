"""A share of the campaign."""

import pytest

from benchmarks.hostile import remotes
from benchmarks.hostile.outcome import FAILURES


@pytest.mark.slow
def test_run__nothing_gets_in(tmp_path):
    found = list(remotes.run(3, 1, tmp_path))
    assert len(found) == 3
    assert not [outcome for outcome in found if outcome.verdict in FAILURES]


def test_attacks__as_many_as_are_counted():
    assert len(remotes.ATTACKS) == remotes.COUNT >= 60
