from polygrain.findings.scores import Scores
from polygrain.findings.sections import curves


def scores_of(**means: float) -> Scores:
    rows = {name: {column: {"r_precision": value} for column in ("a", "b", "mean")} for name, value in means.items()}
    return Scores(["a", "b"], rows, {}, {})


def test_granularity_charts__one_per_task_and_the_mean_with_the_published_points_beside_ours():
    ours, printed = scores_of(encoder=30.0, k4=31.0, k8=33.0, neighbour=35.0), scores_of(k8=34.5, k16=36.0)
    printed.rows["k8"]["b"] = {"r_precision": float("nan")}  # not printed
    charted = curves.granularity_charts(ours, {"k4": 4, "k8": 8}, printed)
    assert [chart["title"] for chart in charted] == ["mean over tasks", "a", "b"]
    drawings = [str(chart["drawing"]) for chart in charted]
    assert all("k8 33.0" in drawing and "neighbour 35.0" in drawing and "k16" not in drawing for drawing in drawings)
    assert all("published k8 34.5" in drawing and "s-published" in drawing for drawing in drawings[:2])
    assert "published" not in drawings[2]


def test_granularity_charts__two_points_are_no_curve():
    ours = scores_of(encoder=30.0, k4=31.0, k8=33.0, k16=34.0)
    assert curves.granularity_charts(ours, {"k4": 4, "k8": 8}) == []
    assert len(curves.granularity_charts(ours, {"k4": 4, "k8": 8, "k16": 16})) == 3
