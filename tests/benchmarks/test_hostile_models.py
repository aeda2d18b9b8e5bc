from benchmarks.hostile import models
from benchmarks.hostile.outcome import FAILURES


def test_run__nothing_gets_through(tmp_path):
    outcomes = list(models.run(30, 1, tmp_path))
    assert outcomes and not [outcome for outcome in outcomes if outcome.verdict in FAILURES]
