"""The runs as a program of others scores them, by images of the file beside them."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import pytrec_eval

from polygrain.collection.postprocessing import strength
from polygrain.collection.postprocessing.strength import SETTINGS
from polygrain.findings import runs
from polygrain.store.image_table import read_table
from stages import evaluation
from tests.helpers.small import TASKS, lists, write_encoder, write_features, write_images

MEASURES = {"r_precision": "Rprec", "map_at_r": "map", "recall_at_1": "success_1"}
PARAMS = evaluation.Params(whitened_dim=8)
SMOOTHING = SETTINGS.model_copy(update={"neighbours": 4})


@pytest.fixture(autouse=True, scope="module")
def few_images():
    """Are enough to smooth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strength, "FEWEST_SMOOTHED", 20)
        patch.setattr(strength, "DEPTH", 5)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    images, encoder = write_images(folder / "images"), write_encoder(folder / "encoder")
    write_features(folder / "features", images)
    given = {"params": PARAMS, "smoothing": SMOOTHING, "alike": {}, "lists": lists()}
    evaluation.main(images, encoder, folder / "features", folder / "out/encoder", model="encoder", **given)
    runs.write(
        folder / "out", ["encoder", "absent"], {task: read_table(images / task) for task in TASKS}, folder / "runs"
    )
    return folder


def truth(folder, task, apart):
    """The relevant images of each query, from the labels alone."""
    images = [row for row in pq.read_table(folder / "runs/images.parquet").to_pylist() if row["task"] == task]
    asking = [row for row in images if (row["is_query"] if apart else row["split"] != "train")]
    offered = [row for row in images if not row["is_query"]] if apart else asking
    return {
        row["path"]: {o["path"]: 1 for o in offered if o["label"] == row["label"] and o["path"] != row["path"]}
        for row in asking
    }


@pytest.mark.parametrize(("form", "name"), [("", "metrics"), ("_collection", "collection"), ("_smoothed", "smoothed")])
def test_write__trec_eval_gives_the_same_numbers(world, form, name):
    measured = json.loads((world / f"out/encoder/{name}.json").read_text())
    rows = pq.read_table(world / f"runs/encoder{form}.parquet").to_pylist()
    assert list(rows[0]) == ["task", "query", "rank", "path", "score", "relevant"] and list(measured) == list(TASKS)
    for task in TASKS:
        relevant, run = truth(world, task, bool(form)), {}
        for row in (row for row in rows if row["task"] == task):
            run.setdefault(row["query"], {})[row["path"]] = row["score"]
            assert row["relevant"] == (row["path"] in relevant[row["query"]]) and row["rank"] == len(run[row["query"]])
        scored = pytrec_eval.RelevanceEvaluator(relevant, {"map", "Rprec", "success"}).evaluate(run)
        assert len(scored) == measured[task]["queries"] > 0
        for ours, theirs in MEASURES.items():
            mean = np.mean([values[theirs] for values in scored.values()])
            assert mean == pytest.approx(measured[task][ours], abs=1e-9), (task, ours)


def test_write__no_file_of_what_was_not_measured(world):
    assert {file.stem for file in (world / "runs").iterdir()} == {
        "images",
        "encoder",
        "encoder_collection",
        "encoder_smoothed",
    }
