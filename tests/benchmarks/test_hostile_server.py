"""A share of the attacks on a real server, with all of its users, browsers and honest callers."""

import pytest

from benchmarks.hostile import server
from benchmarks.hostile.outcome import FAILURES


@pytest.mark.slow
def test_run__nobody_else_gets_in(tmp_path):
    found = list(server.run(60, 0, tmp_path))
    assert [outcome for outcome in found if outcome.verdict in FAILURES] == []
    assert len(found) == 60
    assert found[-1].case == "a run by who has the secret"
