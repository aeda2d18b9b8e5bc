"""Rows that repeat another, in a small world."""

import json
import re
from pathlib import Path

from tests.helpers.report_world import nothing_trained


def test_distinct__one_model_has_one_row_and_nothing_trained_where_nothing_did(tmp_path: Path) -> None:
    text = nothing_trained(tmp_path / "same", best=0.5)
    assert "Without training<small>" not in text and "Recommended model<small>" in text
    assert "trained" not in re.sub("<[^>]*>|<style.*?</style>", " ", text, flags=re.DOTALL)
    assert "without_training" in json.loads((tmp_path / "same/report/metrics.json").read_text())
    assert "Without training<small>" in nothing_trained(tmp_path / "other", best=0.45)
