import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.findings import scores
from polygrain.findings.sections import attention


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
    (row,) = attention.rows(*world, ["average", "neighbour", "static"], table)
    assert row["name"] == "neighbour" and row["gain"] == pytest.approx(0.3)
    assert (row["query"], row["key"]) == (pytest.approx(2), pytest.approx(4))
    assert row["entropy"] == pytest.approx([90, 50]) and row["turnover"] == [50, 25]
    assert attention.headroom(table) == pytest.approx(1.0)


def test_rows__without_an_average_or_a_labelled_task(world):
    (row,) = attention.rows(*world, ["neighbour"], table_of(neighbour=50.3))
    assert math.isnan(row["gain"])
    assert math.isnan(attention.headroom(scores.Scores([], {}, {}, {})))


def test_maps__scale_is_centred_on_the_uniform_weight(tmp_path):
    weights = [
        {"task": "a", "layer": layer, "adaptor": name, "weight": weight}
        for layer in range(2)
        for name, weight in (("k4", 0.2), ("k16", 0.8))
    ]
    (tmp_path / "neighbour").mkdir()
    pq.write_table(pa.Table.from_pylist(weights), tmp_path / "neighbour" / "attention.parquet")
    result = attention.maps(tmp_path, ["average", "neighbour"], ["a"])
    assert (result["centre"], round(result["low"]), round(result["high"])) == (50.0, 20, 80)
    assert "k4 20.0, k16 80.0" in str(result["maps"][0]["drawing"])
    assert attention.maps(tmp_path, ["static"], ["a"]) is None
