import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.store import arrays
from polygrain.store.image_table import TABLE, ImageTable, open_features, read_tables
from tests.helpers.small import store_features


def write_task(folder, task, labels, splits):
    (folder / task).mkdir(parents=True)
    same = {"task": task, "class_name": "", "width": 9, "height": 9, "bytes": 5, "sha256": "00"}
    rows = [same | {"path": f"{i}.png", "label": label, "split": splits[i]} for i, label in enumerate(labels)]
    rows = [row | {"trains": row["split"] == "train", "is_query": row["path"] == "1.png"} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows, TABLE), folder / task / "table.parquet")
    pixels = np.full((len(labels), 8, 8, 3), len(labels), np.uint8)
    pixels[:, 0, 0, 0] = np.arange(len(labels))
    arrays.write(folder / task / "pixels.zarr", pixels)


@pytest.fixture
def images(tmp_path):
    write_task(tmp_path, "b", [0, 0, 1], ["train", "train", "test"])
    write_task(tmp_path, "a", [-1, -1], ["train", "train"])
    return tmp_path


def test_read_tables__joins_tasks_in_the_order_given(images):
    collection = read_tables(images, ["b", "a"])
    assert collection.tasks.tolist() == ["b", "b", "b", "a", "a"]
    assert collection.labels.tolist() == [0, 0, 1, -1, -1]
    assert collection.rows.tolist() == [0, 1, 2, 0, 1]
    assert collection.train.tolist() == [0, 1, 3, 4]
    assert np.flatnonzero(collection.is_test).tolist() == [2] and np.flatnonzero(collection.is_query).tolist() == [1, 4]
    assert read_tables(images, ["a", "b"]).train.tolist() == [0, 1, 2, 3]


def test_read_tables__names_a_missing_or_foreign_table(images):
    with pytest.raises(ValueError, match=r"c/table.parquet is missing or damaged .there is no such file"):
        read_tables(images, ["b", "c"])
    pq.write_table(pa.table({"path": ["x"]}), images / "a" / "table.parquet")
    with pytest.raises(ValueError, match="expected"):
        read_tables(images, ["a"])


def test_train_classes__counted_over_all_tasks():
    tasks = np.array(["b", "b", "a", "a", "b"], dtype=object)
    labels = np.array([4, 2, 2, 0, 4])
    is_train = np.array([True, True, True, False, True])
    collection = ImageTable(tasks, labels, is_train, ~is_train, ~is_train, np.arange(5))
    assert collection.train_classes().tolist() == [2, 1, 0, 2]  # (a, 2), (b, 2), (b, 4)
    labels[2] = -1
    with pytest.raises(ValueError, match="task a has no labels"):
        collection.train_classes()


def test_open_features__refuses_tasks_of_different_encoders(tmp_path):
    for task, width in (("a", 3), ("b", 3), ("c", 4)):
        store_features(tmp_path / task, np.ones((2, width), np.float32))
    assert open_features(tmp_path, ["a", "b"]).shape == (4, 3)
    with pytest.raises(ValueError, match=r"c is of another encoder or side than .*a: run `dvc repro features`"):
        open_features(tmp_path, ["a", "c"])


def test_open_features__half_precision_beside_float32_is_read_as_float32(tmp_path):
    store_features(tmp_path / "a", np.ones((2, 3), np.float16))
    store_features(tmp_path / "b", np.full((2, 3), 7e4, np.float32))
    assert open_features(tmp_path, ["a", "b"])[:].tolist() == [[1] * 3] * 2 + [[7e4] * 3] * 2
