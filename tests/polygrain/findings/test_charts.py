import pyarrow as pa
import pyarrow.parquet as pq

from polygrain.findings import charts
from polygrain.findings.scores import Scores


def scores_of(**means: float) -> Scores:
    rows = {name: {column: {"r_precision": value} for column in ("a", "b", "mean")} for name, value in means.items()}
    return Scores(["a", "b"], rows, {}, {})


def test_granularity_charts__one_per_task_and_the_mean_with_the_published_points_beside_ours():
    ours, printed = scores_of(encoder=30.0, k4=31.0, k8=33.0, neighbour=35.0), scores_of(k8=34.5, k16=36.0)
    printed.rows["k8"]["b"] = {"r_precision": float("nan")}  # not printed
    charted = charts.granularity_charts(ours, {"k4": 4, "k8": 8}, printed)
    assert [chart["title"] for chart in charted] == ["mean over tasks", "a", "b"]
    drawings = [str(chart["drawing"]) for chart in charted]
    assert all("k8 33.0" in drawing and "neighbour 35.0" in drawing and "k16" not in drawing for drawing in drawings)
    assert all("published k8 34.5" in drawing and "s-published" in drawing for drawing in drawings[:2])
    assert "published" not in drawings[2]


def test_granularity_charts__two_points_are_no_curve():
    ours = scores_of(encoder=30.0, k4=31.0, k8=33.0, k16=34.0)
    assert charts.granularity_charts(ours, {"k4": 4, "k8": 8}) == []
    assert len(charts.granularity_charts(ours, {"k4": 4, "k8": 8, "k16": 16})) == 3


def test_training_charts__leave_out_what_has_no_curve():
    epochs = [{"epoch": epoch, "loss": 2.0, "accuracy": 0.5} for epoch in (1, 2)]
    histories = {"adaptor@k4": epochs, "fusion@average": [], "fusion@neighbour": epochs[:1]}
    titles = [chart["title"] for chart in charts.training_charts(histories)]
    assert titles == ["Adaptors: classification loss", "Adaptors: pseudo-label accuracy"]


def test_attention_maps__scale_is_centred_on_the_uniform_weight(tmp_path):
    weights = [
        {"task": "a", "layer": layer, "adaptor": name, "weight": weight}
        for layer in range(2)
        for name, weight in (("k4", 0.2), ("k16", 0.8))
    ]
    (tmp_path / "neighbour").mkdir()
    pq.write_table(pa.Table.from_pylist(weights), tmp_path / "neighbour" / "attention.parquet")
    result = charts.attention_maps(tmp_path, ["average", "neighbour"], ["a"])
    assert (result["centre"], round(result["low"]), round(result["high"])) == (50.0, 20, 80)
    assert "k4 20.0, k16 80.0" in str(result["maps"][0]["drawing"])
    assert charts.attention_maps(tmp_path, ["static"], ["a"]) is None
