import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.findings import fusions, scores


def table_of(**means):
    rows = {name: scores.with_mean({"a": dict.fromkeys(scores.METRICS, value)}, ["a"]) for name, value in means.items()}
    return scores.Scores(["a"], rows, {}, {"a": 1})


@pytest.fixture
def world(tmp_path):
    fusion, evaluation = tmp_path / "fusion", tmp_path / "evaluation"
    for folder in (fusion, evaluation):
        (folder / "neighbour").mkdir(parents=True)
    (fusion / "neighbour/moved.csv").write_text("layer,query,key\n0,0.01,0.03\n1,0.03,0.05\n")
    (fusion / "neighbour/history.csv").write_text("epoch,loss,turnover\n0,2,0.5\n1,1,0.25\n")
    records = [
        {"task": task, "layer": layer, "adaptor": name, "weight": 0.5, "entropy": entropy}
        for task, layer, entropy in [("a", 0, 1.0), ("b", 0, 0.8), ("a", 1, 0.5), ("b", 1, 0.5)]
        for name in ("k4", "k8")
    ]
    pq.write_table(pa.Table.from_pylist(records), evaluation / "neighbour/attention.parquet")
    return fusion, evaluation


def test_rows__means_over_layers_and_tasks(world):
    table = table_of(average=50.0, neighbour=50.3, oracle=51.0)
    (row,) = fusions.rows(*world, ["average", "neighbour", "static"], table)
    assert row["name"] == "neighbour" and row["gain"] == pytest.approx(0.3)
    assert (row["query"], row["key"]) == (pytest.approx(2), pytest.approx(4))
    assert row["entropy"] == pytest.approx([90, 50]) and row["turnover"] == [50, 25]
    assert fusions.headroom(table) == pytest.approx(1.0)


def test_rows__without_an_average_or_a_labelled_task(world):
    (row,) = fusions.rows(*world, ["neighbour"], table_of(neighbour=50.3))
    assert math.isnan(row["gain"])
    assert math.isnan(fusions.headroom(scores.Scores([], {}, {}, {})))
