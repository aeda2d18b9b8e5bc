"""The numbers of the protocol `collection`."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polygrain.findings import collection
from tests.helpers.report_world import entry as entry_of
from tests.helpers.report_world import write_model


@pytest.fixture
def evaluation(tmp_path):
    values = {"encoder": (0.4, 0.6), "without_training": (0.5, 0.6), "k4": (0.5, 0.5), "recommended": (0.55, 0.65)}
    for model, (one, two) in values.items():
        write_model(tmp_path / model, {"one": entry_of(one), "two": entry_of(two)}, {}, [])
    return tmp_path


def rows_of(report: collection.CollectionReport) -> list[str]:
    return [step.row for step in collection.steps(report.table)]


def test_read__rows_plain_and_smoothed(evaluation):
    report = collection.read(
        evaluation, ["encoder", "without_training", "k4", "recommended"], ["one", "two", "flat"], True
    )
    assert report.table.shown == ["mean", "one", "two"] and report.table.queries == {"one": 12, "two": 12}
    assert "k4_smoothed" not in report.table.rows and report.table.get("k4", "mean") == 40.0
    recommended = ["recommended", "recommended_smoothed"]
    assert rows_of(report) == ["encoder", "without_training", *recommended, "without_training_smoothed"]
    smoothings = [(one.task, one.strength, one.neighbours) for one in report.smoothings]
    assert smoothings == [("one", 0.9, 20), ("two", 0.9, 20)]
    assert set(collection.as_json(report)) >= {"collection_encoder", "smoothed_recommended"}


def test_read__what_is_not_smoothed_is_not_called_so(evaluation):
    """Strength 0 is how few images, and those that smoothing would not help, are left as they are."""
    file, models = evaluation / "recommended/smoothing.json", ["encoder", "recommended"]
    smoothing = json.loads(file.read_text())
    smoothing["two"]["strength"] = 0.0
    file.write_text(json.dumps(smoothing))
    report = collection.read(evaluation, models, ["one", "two"], True)
    assert report.unsmoothed == ["two"] and rows_of(report)[-1] == "recommended_smoothed"
    smoothing["one"]["strength"] = 0.0
    file.write_text(json.dumps(smoothing))
    report = collection.read(evaluation, models, ["one", "two"], True)
    assert report.unsmoothed == [] and rows_of(report)[-1] == "recommended"
    assert "smoothed_recommended" not in collection.as_json(report) and "encoder_smoothed" in report.table.rows


def test_steps__each_is_compared_with_the_one_before_it(evaluation):
    """What needs no choice comes first. The encoder at the same side, smoothed, is compared with itself, unsmoothed."""
    write_model(evaluation / "resolution", {"one": entry_of(0.45), "two": entry_of(0.6)}, {}, [])
    for model, values in {"encoder": (0.34, 0.52), "resolution": (0.4, 0.5), "k4": (0.7, 0.7)}.items():
        text = json.dumps({task: entry_of(value) for task, value in zip(("one", "two"), values, strict=True)})
        (evaluation / model / "collection_centred.json").write_text(text)
    report = collection.read(
        evaluation, ["encoder", "resolution", "without_training", "k4", "recommended"], ["one", "two"], True
    )
    rows = [
        "encoder",
        "encoder_centred",
        "resolution_centred",
        "without_training",
        "recommended",
        "recommended_smoothed",
    ]
    steps = collection.steps(report.table)
    assert [step.row for step in steps if not step.is_aside] == rows
    assert [step.base for step in steps if not step.is_aside] == [None, *rows[:-1]]
    assert [(step.row, step.base) for step in steps if step.is_aside] == [
        ("resolution_smoothed", "resolution_centred"),
        ("without_training_smoothed", "without_training"),
    ]
    assert "k4_centred" not in report.table.rows and "collection_encoder_centred" in collection.as_json(report)


def test_steps__the_chosen_model_counts_even_where_another_is_better(tmp_path):
    for model, value in {"encoder": 0.4, "without_training": 0.6, "recommended": 0.5}.items():
        write_model(tmp_path / model, {"one": entry_of(value)}, {}, [])
    report = collection.read(tmp_path, ["encoder", "without_training", "recommended"], ["one"], True)
    assert rows_of(report)[:-1] == ["encoder", "without_training", "recommended", "recommended_smoothed"]


def test_steps__without_training_there_is_one_model(tmp_path):
    for model, value in {"encoder": 0.4, "without_training": 0.6, "recommended": 0.6}.items():
        write_model(tmp_path / model, {"one": entry_of(value)}, {}, [])
    report = collection.read(tmp_path, ["encoder", "without_training", "recommended"], ["one"], True)
    assert rows_of(report) == ["encoder", "recommended", "recommended_smoothed"]


def test_read__without_numbers_nothing_is_measured(tmp_path):
    report = collection.read(tmp_path, ["encoder"], ["one"], False)
    assert not report.is_measured


def test_twins__r_precision_without_the_queries_that_have_one(tmp_path):
    """Of four queries of `one` the first is the near-twin of an image; of `two` three of four are, so it is crowded."""
    cosines = {"one": [0.99, 0.97, 0.5, 0.9], "two": [0.99, 0.99, 0.98, 0.2]}
    ranks = [
        {"task": task, "row": row, "rank": rank, "row_found": 0, "score": score - (rank - 1) / 10}
        for task, values in cosines.items()
        for row, score in enumerate(values)
        for rank in (1, 2)
    ]
    rights = {"encoder": [1, 0.2, 0.4, 0.6], "recommended": [1, 0.5, 0.5, 0.5]}
    for model, values in rights.items():
        records = [
            {"task": task, "row": row, "r_precision": value, "map_at_r": 0, "recall_at_1": 0, "nearest": [0]}
            for task in cosines
            for row, value in enumerate(values)
        ]
        write_model(tmp_path / model, dict.fromkeys(cosines, entry_of(0.5)), {}, records)
        for name in ("collection", "smoothed"):
            (tmp_path / model / f"{name}.json").write_text(json.dumps(dict.fromkeys(cosines, entry_of(0.4, 4))))
    tables = collection.read(tmp_path, ["encoder", "recommended"], [*cosines], True).table
    assert collection.twins(tmp_path, tables) is None
    pq.write_table(pa.Table.from_pylist(ranks), tmp_path / "encoder/collection_ranked.parquet")
    found = collection.twins(tmp_path, tables)
    assert (found.queries, found.crowded) == (1, ["two"])
    assert found.without == {"encoder": 47.5, "recommended": 56.25, "recommended_smoothed": 56.25}
