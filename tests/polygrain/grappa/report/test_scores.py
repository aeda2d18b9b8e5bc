import json
import math

import pytest

from polygrain.grappa.report import scores


def write(folder, metrics, whitened):
    folder.mkdir(parents=True)
    for name, values in (("metrics", metrics), ("whitened", whitened)):
        full = {t: {"r_precision": v, "map_at_r": v / 2, "recall_at_1": v, "queries": 7} for t, v in values.items()}
        (folder / f"{name}.json").write_text(json.dumps(full))


@pytest.fixture
def table(tmp_path):
    write(tmp_path / "encoder", {"a": 0.30, "b": 0.50}, {"a": 0.35, "b": 0.49})
    write(tmp_path / "k4", {"a": 0.40, "b": 0.45}, {"a": 0.20, "b": 0.20})
    write(tmp_path / "k8", {"a": 0.38, "b": 0.55}, {"a": 0.21, "b": 0.10})
    write(tmp_path / "average", {"a": 0.41, "b": 0.53}, {"a": 0.36, "b": 0.50})
    return scores.read(tmp_path, ["encoder", "k4", "k8", "average"], ["k4", "k8"], ["a", "b"])


def test_read__means_are_over_tasks_and_in_percent(table):
    assert table.get("encoder", "mean") == 40.0
    assert table.get("encoder_whitened", "mean") == 42.0
    assert table.get("k8", "a", "map_at_r") == 19.0
    assert table.queries == {"a": 7, "b": 7}


def test_read__the_oracle_takes_the_best_single_adaptor_of_each_task(table):
    assert table.choices["oracle"] == {"a": "k4", "b": "k8"}
    assert table.get("oracle", "mean") == 47.5
    assert table.choices["oracle_whitened"] == {"a": "k8", "b": "k4"}


def test_differences__are_in_points_with_their_sign(table):
    assert table.differences("k4", "encoder") == {"a": 10.0, "b": -5.0, "mean": 2.5}


def test_comparisons__ask_like_against_like(table):
    found = {c["title"]: (c["row"], c["base"], c["differences"]["mean"]) for c in scores.comparisons(table, "average")}
    assert found["As it is"] == ("average", "encoder", 7.0)
    assert found["Whitening alone"] == ("encoder_whitened", "encoder", 2.0)
    assert found["Both whitened"] == ("average_whitened", "encoder_whitened", 1.0)
    assert found["Best form of each"] == ("average", "encoder_whitened", 5.0)


def test_read__a_task_without_queries_is_left_out_of_the_means(tmp_path):
    write(tmp_path / "encoder", {"a": 0.30}, {"a": 0.35})
    table = scores.read(tmp_path, ["encoder"], [], ["a", "flat"])
    assert table.tasks == ["a"] and table.get("encoder", "mean") == 30.0
    assert math.isnan(table.get("encoder", "flat"))


def test_read__names_a_damaged_file_and_a_task_called_mean(tmp_path):
    write(tmp_path / "encoder", {"a": 0.30}, {"a": 0.35})
    with pytest.raises(ValueError, match="rename it"):
        scores.read(tmp_path, ["encoder"], [], ["mean"])
    (tmp_path / "encoder" / "metrics.json").write_text("{")
    with pytest.raises(ValueError, match=r"metrics.json is missing or damaged"):
        scores.read(tmp_path, ["encoder"], [], ["a"])


def test_read__one_gallery_is_a_column_of_its_own(tmp_path):
    for name in ("encoder", "k4"):
        write(tmp_path / name, {"a": 0.30, "b": 0.50}, {"a": 0.35, "b": 0.49})
    assert scores.read(tmp_path, ["encoder"], [], ["a", "b"]).columns == ["a", "b", "mean"]
    full = {
        task: {"r_precision": v, "map_at_r": v / 2, "recall_at_1": v, "queries": 7}
        for task, v in (("a", 0.2), ("b", 0.4))
    }
    (tmp_path / "encoder/shared.json").write_text(json.dumps(full))
    (tmp_path / "encoder/shared_whitened.json").write_text("{}")
    table = scores.read(tmp_path, ["encoder", "k4"], ["k4"], ["a", "b"])
    assert table.columns == ["a", "b", "mean", scores.SHARED]
    assert table.get("encoder", scores.SHARED) == 30.0 and table.get("encoder", scores.SHARED, "map_at_r") == 15.0
    assert table.get("encoder", "mean") == 40.0
    # No model is the oracle's choice for all tasks at once.
    for row in ("k4", "oracle", "encoder_whitened"):
        assert math.isnan(table.get(row, scores.SHARED))
    assert scores.SHARED in scores.as_json(table)["encoder"] and scores.SHARED not in scores.as_json(table)["oracle"]
    assert table.over(["a"]).columns == ["a", "mean"]


def test_headliner__prefers_the_neighbour_fusion(table):
    assert scores.headliner(table, ["k4", "k8"]) == "average"
    del table.rows["average"]
    assert scores.headliner(table, ["k4", "k8"]) == "k8"


def test_over__the_mean_is_over_these_tasks_only(tmp_path):
    rows = {"k4": {task: dict.fromkeys(scores.METRICS, value) for task, value in (("a", 1.0), ("b", 2.0), ("c", 6.0))}}
    table = scores.Scores(["a", "b", "c"], rows, {"oracle": {"a": "k4", "c": "k4"}}, {"a": 5, "b": 6, "c": 7})
    part = table.over(["a", "b"])
    assert part.get("k4", scores.MEAN) == 1.5 and part.tasks == ["a", "b"] and "c" not in part.rows["k4"]
    assert part.choices == {"oracle": {"a": "k4"}} and part.queries == {"a": 5, "b": 6}


def test_read__what_is_finished_has_no_whitened_row_and_the_chosen_comes_first_to_mind(tmp_path):
    for name in ("encoder", "neighbour", "distilled_encoder", "chosen"):
        write(tmp_path / name, {"a": 0.30 + 0.1 * (name == "chosen")}, {"a": 0.35})
    names = scores.in_order(["chosen", "cub-one", "distilled_encoder", "neighbour", "encoder"], [])
    assert names == ["encoder", "neighbour", "distilled_encoder", "cub-one", "chosen"]
    names.remove("cub-one")
    table = scores.read(tmp_path, names, [], ["a"])
    assert list(table.rows) == [
        *("encoder", "encoder_whitened", "neighbour", "neighbour_whitened", "distilled_encoder", "chosen")
    ]
    assert scores.headliner(table, []) == "chosen" and table.best_form("chosen") == "chosen"
    found = {c["title"]: (c["row"], c["base"], c["differences"]["mean"]) for c in scores.comparisons(table, "chosen")}
    assert found["Against whitening alone"] == ("chosen", "encoder_whitened", 5.0)
    assert found["Against the best fusion"] == ("chosen", "neighbour_whitened", 5.0)
    assert len(found) == 4


def test_comparisons__with_the_encoder_at_its_best(tmp_path):
    for name, value in (("encoder", 0.3), ("untrained", 0.33), ("chosen", 0.4)):
        write(tmp_path / name, {"a": value}, {"a": 0.32})
    names = scores.in_order(["chosen", "untrained", "encoder"], [])
    table = scores.read(tmp_path, names, [], ["a"])
    assert list(table.rows) == ["encoder", "encoder_whitened", "untrained", "chosen"]
    found = {c["title"]: (c["row"], c["base"], c["differences"]["mean"]) for c in scores.comparisons(table, "chosen")}
    assert found["Against the encoder at its best"] == ("chosen", "untrained", 7.0)
