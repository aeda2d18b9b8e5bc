import json
import math

import pytest

from polygrain.findings import scores


def write_scores(file, values):
    full = {t: {"r_precision": v, "map_at_r": v / 2, "recall_at_1": v, "queries": 7} for t, v in values.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(full))


def write(folder, metrics, whitened):
    write_scores(folder / "metrics.json", metrics)
    write_scores(folder / "whitened.json", whitened)


@pytest.fixture
def table(tmp_path):
    write(tmp_path / "encoder", {"a": 0.30, "b": 0.50}, {"a": 0.35, "b": 0.49})
    write(tmp_path / "k4", {"a": 0.40, "b": 0.45}, {"a": 0.20, "b": 0.20})
    write(tmp_path / "k8", {"a": 0.38, "b": 0.55}, {"a": 0.21, "b": 0.10})
    write(tmp_path / "average", {"a": 0.41, "b": 0.53}, {"a": 0.36, "b": 0.50})
    return scores.read(tmp_path, ["encoder", "k4", "k8", "average"], ["k4", "k8"], ["a", "b", "flat"])


def test_read__means_in_percent_over_tasks_with_queries_and_the_oracle(table):
    assert table.tasks == ["a", "b"] and table.queries == {"a": 7, "b": 7}
    assert table.get("encoder", "mean") == 40.0 and table.get("encoder_whitened", "mean") == 42.0
    assert table.get("k8", "a", "map_at_r") == 19.0 and math.isnan(table.get("encoder", "flat"))
    assert table.choices == {"oracle": {"a": "k4", "b": "k8"}, "oracle_whitened": {"a": "k8", "b": "k4"}}
    assert table.get("oracle", "mean") == 47.5
    assert table.differences("k4", "encoder") == {"a": 10.0, "b": -5.0, "mean": 2.5}


def test_read__names_a_damaged_file_and_a_task_called_mean(tmp_path):
    write(tmp_path / "encoder", {"a": 0.30}, {"a": 0.35})
    with pytest.raises(ValueError, match="rename it"):
        scores.read(tmp_path, ["encoder"], [], ["mean"])
    (tmp_path / "encoder/metrics.json").write_text("{")
    with pytest.raises(ValueError, match=r"metrics.json is missing or damaged"):
        scores.read(tmp_path, ["encoder"], [], ["a"])


def test_headliner__a_fusion_before_the_best_adaptor(table):
    assert scores.headliner(table, ["k4", "k8"]) == "average"
    del table.rows["average"]
    assert scores.headliner(table, ["k4", "k8"]) == "k8"


def test_over__the_mean_is_over_these_tasks_only():
    rows = {"k4": {task: dict.fromkeys(scores.METRICS, value) for task, value in (("a", 1.0), ("b", 2.0), ("c", 6.0))}}
    table = scores.Scores(["a", "b", "c"], rows, {"oracle": {"a": "k4", "c": "k4"}}, {"a": 5, "b": 6, "c": 7})
    part = table.over(["a", "b"])
    assert part.get("k4", scores.MEAN) == 1.5 and part.tasks == ["a", "b"] and "c" not in part.rows["k4"]
    assert part.choices == {"oracle": {"a": "k4"}} and part.queries == {"a": 5, "b": 6}


def test_read__finished_models_have_no_whitened_row_and_the_chosen_one_leads(tmp_path):
    values = {"encoder": 0.3, "without_training": 0.33, "neighbour": 0.3, "recommended": 0.4}
    for name, value in values.items():
        write(tmp_path / name, {"a": value}, {"a": 0.35})
    table = scores.read(tmp_path, values, [], ["a"])
    assert list(table.rows) == [
        *("encoder", "encoder_whitened", "without_training", "neighbour", "neighbour_whitened", "recommended")
    ]
    assert scores.headliner(table, []) == "recommended"
