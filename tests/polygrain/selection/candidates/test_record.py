from pathlib import Path

import numpy as np
import pytest

from polygrain.selection.candidates.decision import Decision, Judged
from polygrain.selection.candidates.forms import Form
from polygrain.selection.candidates.record import about_layer, about_sides, candidate_rows, neighbour_table, summary
from polygrain.selection.candidates.trial import Candidate, Trial
from polygrain.selection.criterion import Sample
from polygrain.store.image_table import read_tables
from tests.helpers.small import TASKS, write_images


@pytest.fixture
def trial() -> Trial:
    """Two images of each task; the model finds more of the first task and fewer of the second."""
    sample = Sample(np.array([0, 3, 50, 51]), np.array(["dots", "dots", "bars", "bars"], dtype=object))
    agreement = np.full(4, 0.5)
    candidates = {
        "encoder": Candidate(Form("encoder"), Judged(np.array([0.2, 0.4, 0.6, 0.6]), agreement), {}),
        "k4": Candidate(Form("k4"), Judged(np.array([0.8, 1.0, 0.5, 0.3]), agreement), {}),
    }
    for one, order in zip(candidates.values(), ([[1], [0]], [[0], [1]]), strict=True):
        one.neighbours.update({task: np.array(order) for task in TASKS})
    return Trial(sample, ["few"], candidates)


def test_candidate_rows__the_best_first_with_a_column_for_each_task(trial: Trial) -> None:
    head, *rows = candidate_rows(trial, Decision("encoder", "k4", {"encoder": [], "k4": ["bars"]}))
    first, second = (dict(zip(head, row, strict=True)) for row in rows)
    assert (first["name"], first["criterion"], first["falls"], first["recommended"]) == ("k4", "0.65", "bars", 0)
    assert (second["name"], second["dots"], second["bars"], second["recommended"]) == ("encoder", "0.3", "0.6", 1)


def test_about_layer__names_the_granularities() -> None:
    assert "2 granularities (size4, k64)" in about_layer(["size4", "k64"])
    assert "1 granularity (size4)" in about_layer(["size4"])


def test_about_sides__both_with_their_recall_where_two_were_tried() -> None:
    rows = [{"side": "96", "recall": "0.879", "chosen": "0"}, {"side": "144", "recall": "0.861", "chosen": "1"}]
    (line,) = about_sides(rows)
    assert all(word in line for word in ("87.9", "96 px", "86.1", " 144 px is the largest"))
    assert about_sides(rows[:1]) == []


def test_neighbour_table__rows_within_their_task(trial: Trial, tmp_path: Path) -> None:
    collection = read_tables(write_images(tmp_path / "images"), list(TASKS))
    rows = neighbour_table(trial, trial.candidates["k4"].neighbours, collection).to_pylist()
    assert [(row["task"], row["row"]) for row in rows] == [("dots", 0), ("dots", 3), ("bars", 2), ("bars", 3)]
    assert [row["encoder"] for row in rows] == [[3], [0], [3], [2]]


def test_summary__means_over_tasks_of_both_and_their_difference(trial: Trial, tmp_path: Path) -> None:
    content = summary(trial, "k4", ["why"], read_tables(write_images(tmp_path / "images"), list(TASKS)))
    assert content["criterion"]["mean"]["encoder"][0] == pytest.approx(0.45)
    assert content["criterion"]["mean"]["difference"][0] == pytest.approx(0.2)
    assert content["criterion"]["bars"]["recommended"][0] == pytest.approx(0.4)
    assert content["name"] == "k4" and content["images"] == 4 and content["uncertain"] == ["few"]
