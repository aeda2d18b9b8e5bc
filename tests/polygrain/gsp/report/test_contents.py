import numpy as np

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


def test_pictures__show_every_run_beside_the_image():
    even = np.full((2, 2, 2), 0.25, np.float32)
    tensors = {"pixels": np.zeros((2, 8, 8, 3), np.uint8), "weights/a": even, "weights/b": even}
    looks = contents.pictures(tensors | {"nearest/b": np.zeros((2, 2, 2), np.int16)}, ["a", "b"], ["x", "y"], 32)
    assert looks["columns"] == ["class", "image", "a: 25 %", "b: 25 %", "its prototypes"]
    assert [len(row["pictures"]) for row in looks["rows"]] == [4, 4]
