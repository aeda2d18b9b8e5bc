import numpy as np
import pytest

from polygrain.gsp.report import contents
from polygrain.report import page


def entry(mean, std=0.0):
    return {"mean": mean, "std": std}


METRICS = {
    "c2-gap": {"mean": {"map_at_r": entry(0.2, 0.01), "recall_at_1": entry(0.5)}, "concat": {"map_at_r": entry(0.21)}},
    "c2-gsp": {"mean": {"map_at_r": entry(0.25), "recall_at_1": entry(0.4)}, "concat": {"map_at_r": entry(0.26)}},
}


def test_table__in_percent_and_the_best_of_each_column():
    columns, rows = contents.table(METRICS, [("mean", "map_at_r", "A"), ("mean", "recall_at_1", "B")])
    assert columns == ["A", "B"]
    assert [row["values"][0]["mean"] for row in rows] == [20, 25] and rows[0]["values"][0]["std"] == 1
    assert [[value["is_best"] for value in row["values"]] for row in rows] == [[False, True], [True, False]]


def test_gains__in_points_of_the_form_asked_for():
    (sentence,) = contents.gains(METRICS, [("c2-gsp", "c2-gap")], "mean")
    assert sentence["gain"] == 5 and "25.00 % and 20.00 %" in sentence["text"]


def test_curves__name_every_run_and_its_best():
    (chart,) = contents.curves({"a": [(50.0, 0.1), (100.0, 0.3)], "b": [(50.0, 0.2)]}, "Loss")
    assert "a 30.0" in chart["drawing"] and "b 20.0" in chart["drawing"]
    assert contents.curves({"a": []}, "Loss") == []


def test_pictures__show_every_run_beside_the_image():
    tensors = {
        "pixels": np.zeros((2, 8, 8, 3), np.uint8),
        "weights/a": np.full((2, 2, 2), 0.25, np.float32),
        "weights/b": np.full((2, 2, 2), 0.25, np.float32),
        "nearest/b": np.zeros((2, 2, 2), np.int16),
    }
    looks = contents.pictures(tensors, ["a", "b"], ["x", "y"], 32)
    assert looks["columns"] == ["class", "image", "a: 25 %", "b: 25 %", "its prototypes"]
    assert [len(row["pictures"]) for row in looks["rows"]] == [4, 4]
    assert contents.pictures(tensors, ["a"], [], 32) is None


def test_attribute_maps__one_per_run():
    values = np.full((2, 4), 0.25)
    values[0, 0] = 0.4
    (chart,) = contents.attribute_maps({"a": values}, ["first", "second"])
    assert chart["title"] == "a" and "40.0" in chart["drawing"]


@pytest.mark.parametrize("template", ["gsp/report/gsp.html.j2", "gsp/report/gsp.md.j2"])
def test_templates__escape_names_and_load_nothing(template):
    columns, rows = contents.table({"<b>": METRICS["c2-gap"]}, [("mean", "map_at_r", "MAP@R")])
    content = {"title": "<i>", "heading": "h", "sentences": [], "columns": columns, "rows": rows, "note": "n"}
    content |= {"published": [], "charts": [], "looks": None, "attributes": [], "transfer": {}}
    text = page.render(template, content)
    assert "20.00" in text and "1.00" in text
    if template.endswith("html.j2"):
        assert "<b>" not in text and "&lt;i&gt;" in text and "://" not in text and "<script" not in text
