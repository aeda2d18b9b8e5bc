from pathlib import Path

import numpy as np
import pytest

from polygrain.compute.vectors import unit_rows
from polygrain.retrieval.smoothing_choice import SETTINGS
from polygrain.selection.candidates.judges import Judging, Settings, appoint, teachers, thinned
from polygrain.selection.criterion import Embedded, Sample, neighbours
from polygrain.selection.seen import Seen
from polygrain.store.collection import read_tables
from tests.helpers.settings import comparing
from tests.helpers.small import TASKS, write_images


def test_judge__who_gives_what_the_teacher_gives_answers_all(tmp_path: Path) -> None:
    collection = read_tables(write_images(tmp_path / "images"), list(TASKS))
    targets = unit_rows(np.random.default_rng(0).normal(size=(len(collection.train), 8)).astype(np.float32))
    settings = Settings(**comparing(searched=["smoothed"]))
    sample = Sample(collection.train[::6], collection.tasks[collection.train[::6]])
    judge = teachers(
        Judging(settings, 1.0, SETTINGS, {"own": targets}, 0, Seen(sample)), sample, collection.train, collection
    )
    given = np.concatenate([targets[::6], targets[np.isin(collection.train, judge.others)]])
    judged, hits = judge.judge(Embedded(given, []))
    assert judged.score.tolist() == [1] * len(sample.rows) and list(hits) == list(TASKS)
    assert judge.judge(Embedded(given[::-1].copy(), []))[0].score.mean() < 0.9


def test_thinned__an_image_of_the_smallest_task_has_a_neighbour(tmp_path: Path) -> None:
    collection = read_tables(write_images(tmp_path / "images", 2, 4), list(TASKS))
    first = collection.train[collection.tasks[collection.train] == TASKS[0]][:2]
    few = thinned(Sample(first, collection.tasks[first]), collection)
    assert neighbours(np.eye(2, dtype=np.float32), few, 5)[TASKS[0]].tolist() == [[1], [0]]


def test_appoint__without_teachers_and_looks_it_says_what_to_run_again(tmp_path: Path) -> None:
    collection = read_tables(write_images(tmp_path / "images"), list(TASKS))
    sample = Sample(collection.train[::6], collection.tasks[collection.train[::6]])
    with pytest.raises(ValueError, match="dvc repro resolution"):
        appoint(Judging(Settings(**comparing()), 1.0, SETTINGS, {}, 0, Seen(sample)), collection)
