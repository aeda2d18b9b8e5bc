import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.grappa.report import charts
from polygrain.grappa.report.scores import Scores


def test_granularity_charts__one_per_task_and_one_for_the_mean():
    rows = {
        name: {column: {"r_precision": value} for column in ("a", "b", "mean")}
        for name, value in {"encoder": 30.0, "k4": 31.0, "k8": 33.0, "neighbour": 35.0}.items()
    }
    drawn = charts.granularity_charts(Scores(["a", "b"], rows, {}, {}), {"k4": 4, "k8": 8})
    assert [chart["title"] for chart in drawn] == ["mean over tasks", "a", "b"]
    assert "k8 33.0" in str(drawn[0]["drawing"]) and "neighbour 35.0" in str(drawn[0]["drawing"])


def test_granularity_charts__the_published_points_beside_ours():
    ours, theirs = (
        Scores(
            ["a", "b"], {name: {c: {"r_precision": value} for c in ("a", "b", "mean")} for name, value in made}, {}, {}
        )
        for made in ([("k4", 31.0), ("k8", 33.0)], [("k8", 34.5), ("k16", 36.0)])
    )
    theirs.rows["k8"]["b"] = {"r_precision": float("nan")}  # not printed
    charted = [str(chart["drawing"]) for chart in charts.granularity_charts(ours, {"k4": 4, "k8": 8}, theirs)]
    assert all("published k8 34.5" in drawing and "s-published" in drawing for drawing in charted[:2])
    assert not any("k16" in drawing for drawing in charted) and "published" not in charted[2]


def test_granularity_charts__none_without_adaptors():
    assert charts.granularity_charts(Scores(["a"], {}, {}, {}), {}) == []


def test_training_charts__leave_out_what_has_no_epochs():
    histories = {"adaptor@k4": [{"epoch": 1, "loss": 2.0, "accuracy": 0.5}], "fusion@average": []}
    assert [chart["title"] for chart in charts.training_charts(histories)] == [
        "Adaptors: classification loss",
        "Adaptors: pseudo-label accuracy",
    ]


def test_attention_maps__scale_is_centred_on_the_uniform_weight(tmp_path):
    weights = [
        {"task": "a", "layer": layer, "adaptor": name, "weight": weight}
        for layer in range(2)
        for name, weight in (("k4", 0.2), ("k16", 0.8))
    ]
    (tmp_path / "neighbour").mkdir()
    pq.write_table(pa.Table.from_pylist(weights), tmp_path / "neighbour" / "attention.parquet")
    found = charts.attention_maps(tmp_path, ["average", "neighbour"], ["a"])
    assert (found["centre"], round(found["low"]), round(found["high"])) == (50.0, 20, 80)
    assert "k4 20.0, k16 80.0" in str(found["maps"][0]["drawing"])
    assert charts.attention_maps(tmp_path, ["static"], ["a"]) is None
