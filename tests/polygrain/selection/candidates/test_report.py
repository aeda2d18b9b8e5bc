import math
from pathlib import Path

import numpy as np
import pytest

from polygrain.encoder.config import AdaptorConfig
from polygrain.selection.candidates.forms import Form
from polygrain.selection.candidates.report import (
    about_layer,
    about_sides,
    candidate_rows,
    card,
    interval,
    neighbour_table,
    summary,
)
from polygrain.selection.candidates.search import Candidate, Decision, Scores, Search
from polygrain.selection.criterion import Sample
from polygrain.store.image_table import read_tables
from tests.helpers.small import CONFIG, TASKS, write_images

CHOICE = {"name": "average, at 1.5 times the side", "why": ["It is the best.", "No other is."]}
CHOICE["learnt"] = {"tasks": ["dots", "bars"], "images": 4800}
ADAPTED = CONFIG.model_copy(
    update={"adaptors": AdaptorConfig(names=["k4", "k8"], width=8, fusion="average"), "reduced": 16, "scaled": 48}
)


@pytest.mark.parametrize(
    ("config", "form", "facts"),
    [
        (
            ADAPTED,
            {"scale": 1.5, "layer": "clusters"},
            ["scaled to 48 px", "Adaptors: k4, k8\n", "in closed form from clusters", "Cost: 2.25 ", "16 numbers"],
        ),
        (CONFIG, {"scale": 1.0, "layer": "none"}, ["Adaptors: none", "Last layer: none", "Cost: 1 "]),
    ],
)
def test_card__says_what_the_model_is_and_why(config, form, facts):
    text = card(config, CHOICE | {"form": form})
    common = ["# average, at 1.5 times the side", "4,800 images of dots, bars", "- It is the best.\n- No other is.\n"]
    for fact in [*facts, *common]:
        assert fact in text
    assert "None" not in text


@pytest.fixture
def search() -> Search:
    """Two images of each task; the model finds more of the first task and fewer of the second."""
    sample = Sample(np.array([0, 3, 50, 51]), np.array(["dots", "dots", "bars", "bars"], dtype=object))
    agreement = np.full(4, 0.5)
    candidates = {
        "encoder": Candidate(Form("encoder"), Scores(np.array([0.2, 0.4, 0.6, 0.6]), agreement), {}),
        "k4": Candidate(Form("k4"), Scores(np.array([0.8, 1.0, 0.5, 0.3]), agreement), {}),
    }
    for one, order in zip(candidates.values(), ([[1], [0]], [[0], [1]]), strict=True):
        one.neighbours.update({task: np.array(order) for task in TASKS})
    return Search(sample, ["few"], candidates)


def test_candidate_rows__the_best_first_with_a_column_for_each_task(search: Search) -> None:
    head, *rows = candidate_rows(search, Decision("encoder", "k4", {"encoder": [], "k4": ["bars"]}))
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


def test_neighbour_table__rows_within_their_task(search: Search, tmp_path: Path) -> None:
    collection = read_tables(write_images(tmp_path / "images"), list(TASKS))
    rows = neighbour_table(search, search.candidates["k4"].neighbours, collection).to_pylist()
    assert [(row["task"], row["row"]) for row in rows] == [("dots", 0), ("dots", 3), ("bars", 2), ("bars", 3)]
    assert [row["encoder"] for row in rows] == [[3], [0], [3], [2]]


def test_summary__means_over_tasks_of_both_and_their_difference(search: Search, tmp_path: Path) -> None:
    content = summary(search, "k4", ["why"], read_tables(write_images(tmp_path / "images"), list(TASKS)))
    assert content["criterion"]["mean"]["encoder"][0] == pytest.approx(0.45)
    assert content["criterion"]["mean"]["difference"][0] == pytest.approx(0.2)
    assert content["criterion"]["bars"]["recommended"][0] == pytest.approx(0.4)
    assert content["name"] == "k4" and content["images"] == 4 and content["uncertain"] == ["few"]


def test_interval__equals_a_plain_bootstrap():
    parts = np.split(np.random.default_rng(0).random(30), [10])
    mean, low, high = interval(parts, draws=4000)
    generator = np.random.default_rng(5)
    means = sorted(
        sum(sum(part[generator.integers(len(part))] for _ in part) / len(part) for part in parts) / 2
        for _ in range(4000)
    )
    assert mean == pytest.approx(sum(part.mean() for part in parts) / 2)
    assert (low, high) == pytest.approx((means[100], means[3900]), abs=0.01)
    assert interval([np.array([0.9])]) == (0.9, 0.9, 0.9) and all(map(math.isnan, interval([])))
