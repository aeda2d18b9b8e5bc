import re

import pytest

from polygrain.mpcl.pretraining.objective import columns
from polygrain.mpcl.report.charts import charts


def history(heads, epochs=3):
    return [{name: 0.1 * e for name in columns(heads)} | {"epoch": float(e)} for e in range(1, epochs + 1)]


@pytest.mark.parametrize(("heads", "count"), [(1, 4), (2, 5), (4, 5)])
def test_charts__each_head_has_a_line_and_pairs_only_where_there_are_some(heads, count):
    drawn = {chart["title"]: str(chart["drawing"]) for chart in charts(history(heads), heads)}
    assert len(drawn) == count
    for title in ("Loss of each head", "Accuracy of each head", "Weight of each head"):
        assert len(re.findall("<polyline", drawn[title])) == heads
    if heads > 1:
        assert len(re.findall("<polyline", drawn["Cosine between heads"])) == heads * (heads - 1) // 2
        assert "least possible" in drawn["Cosine between heads"]


def test_charts__accuracies_and_shares_of_weights_are_in_percent():
    rows = [row | {"weight_1": 3.0, "weight_2": 1.0} for row in history(2)]
    drawn = {chart["title"]: str(chart["drawing"]) for chart in charts(rows, 2)}
    assert "head 1 30" in drawn["Accuracy of each head"].replace(":", "")
    assert "head 1 75, head 2 25" in drawn["Weight of each head"]
    assert charts([], 2) == []
