"""A share of the campaign; all of it: python -m benchmarks.hostile images."""

from benchmarks.hostile import images
from benchmarks.hostile.outcome import FAILURES


def test_run__nothing_raw_silent_hanging_or_escaped(tmp_path):
    found = list(images.run(60, 7, tmp_path))
    assert len(found) == 60
    assert not [outcome for outcome in found if outcome.verdict in FAILURES]
