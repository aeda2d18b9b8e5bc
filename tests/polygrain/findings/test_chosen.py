import math
from dataclasses import replace

import pytest

from polygrain.findings import chosen
from tests.helpers.report_world import CANDIDATES, write_choice


@pytest.fixture
def choice(tmp_path):
    write_choice(tmp_path, ["one", "two"])
    return chosen.read(tmp_path)


def test_read__percent_with_intervals_and_the_candidate_that_was_taken(choice):
    assert choice.compared["two"]["recommended"] == (75.0, 70.0, 80.0) and choice.compared["two"]["difference"].is_clear
    assert choice.taken.name == CANDIDATES[0][0] and choice.taken.dim == 8 and choice.taken.tasks["two"] == 80.0
    assert not choice.is_encoder


@pytest.mark.parametrize("nothing", [math.nan, None])
def test_read__columns_without_a_value_are_left_out(tmp_path, nothing):
    sides = {"encoder": [0.5, nothing, nothing], "recommended": [0.5] * 3, "difference": [nothing] * 3}
    write_choice(tmp_path, ["one"], "encoder", criterion={"one": sides})
    assert chosen.read(tmp_path).compared == {}
    write_choice(tmp_path, [], "encoder", criterion=None)
    choice = chosen.read(tmp_path)
    assert choice.compared == {} and choice.is_encoder and math.isnan(choice.candidates[0].criterion)


def test_read__tasks_may_bear_a_column_s_name(tmp_path):
    write_choice(tmp_path, ["name", "cost"])
    best = chosen.read(tmp_path).candidates[0]
    assert best.tasks == {"name": 70.0, "cost": 80.0} and best.cost == 1 and best.name == CANDIDATES[0][0]


def test_first__the_chosen_and_the_encoder_are_always_among_them(choice):
    assert [rank for rank, _ in choice.first(2)] == [1, 2, 6]
    choice.candidates.append(replace(choice.candidates[0], name="last"))
    assert [one.name for _, one in choice.first(1)] == [CANDIDATES[0][0], "encoder", "last"]
