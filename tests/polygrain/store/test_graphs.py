import json

import numpy as np

from polygrain.store.graphs import search_of, turnover


def test_turnover__is_the_mean_share_of_those_not_there_before():
    before, after = np.array([[1, 2], [0, 2], [0, 1]]), np.array([[2, 1], [0, 3], [4, 3]])
    assert turnover(before, after) == (0 + 0.5 + 1) / 3


def test_search_of__a_graph_without_a_summary_is_exact(tmp_path):
    assert search_of(tmp_path) == ("exact", 1.0)
    (tmp_path / "summary.json").write_text(json.dumps({"index": "ivf", "wanted": 0.9, "recall": 0.93}))
    assert search_of(tmp_path) == ("ivf", 0.9)
