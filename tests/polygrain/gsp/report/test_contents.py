import numpy as np

from polygrain.config.items.gsp import Run
from polygrain.gsp.report import contents


def entry(mean, std=0.0):
    return {"mean": mean, "std": std}


METRICS = {
    "c2-gap": {"mean": {"map_at_r": entry(0.2, 0.01), "recall_at_1": entry(0.5)}},
    "c2-gsp": {"mean": {"map_at_r": entry(0.25), "recall_at_1": entry(0.4)}},
}


def test_table_and_gains__in_percent_and_the_best_of_each_column():
    columns, rows = contents.table(METRICS, [("mean", "map_at_r", "A"), ("mean", "recall_at_1", "B")])
    assert columns == ["A", "B"]
    assert [[value["mean"] for value in row["values"]] for row in rows] == [[20, 50], [25, 40]]
    assert [[value["is_best"] for value in row["values"]] for row in rows] == [[False, True], [True, False]]
    assert rows[0]["values"][0]["std"] == 1
    (sentence,) = contents.gains(METRICS, [("c2-gsp", "c2-gap")], "mean")
    assert sentence["gain"] == 5 and "25.00 % and 20.00 %" in sentence["text"]


def test_sweeps__a_line_for_each_setting_of_the_other_values():
    run = Run(images="images/cub", loss="c2", pooling="gsp", zero_shot=0.1, values={})
    pairs = [(m, epsilon) for m in (8, 16, 32) for epsilon in (0.5, 5.0)]
    settings = {f"{m}-{epsilon}": {"values": {"prototypes": m, "epsilon": epsilon}} for m, epsilon in pairs}
    metrics = {name: {"separate": {"map_at_r": entry(0.2)}} for name in settings}
    runs = dict.fromkeys(settings, run)
    (chart,) = contents.sweeps(runs, settings, metrics, "separate")
    assert chart["title"].endswith("MAP@R over prototypes")
    drawn = str(chart["drawing"])
    assert drawn.count("<polyline") == 2 and "epsilon 0.5" in drawn and "epsilon 5" in drawn
    assert contents.sweeps(dict.fromkeys(["8-0.5", "16-0.5"], run), settings, metrics, "separate") == []


def test_pictures__show_every_run_that_weighs_places_beside_the_image():
    uneven, even = np.float32([[[0.4, 0.2], [0.2, 0.2]]] * 2), np.full((2, 2, 2), 0.25, np.float32)
    tensors = {"pixels": np.zeros((2, 8, 8, 3), np.uint8), "nearest/b": np.zeros((2, 2, 2), np.int16)}
    tensors |= {"weights/a": uneven, "weights/b": uneven, "weights/gmp": even}
    looks = contents.pictures(tensors, ["a", "gmp", "b"], ["x", "y"], 32)
    assert looks["columns"] == ["class", "image", "a: 40 %", "b: 40 %", "its prototypes"]
    assert [len(row["pictures"]) for row in looks["rows"]] == [4, 4]
