from benchmarks.hostile import parameter_files
from benchmarks.hostile.outcome import FAILURES


def test_run__nothing_gets_through(tmp_path):
    outcomes = list(parameter_files.run(20, 1, tmp_path))
    assert outcomes and not [outcome for outcome in outcomes if outcome.verdict in FAILURES]
