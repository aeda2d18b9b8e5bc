import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from polygrain.findings import chosen, headline, scores
from polygrain.findings.advice import Advice, advise
from polygrain.findings.collection import steps
from tests.helpers.report_world import CANDIDATES, write_choice

MODEL, BEST, PLAIN = "Use the recommended model", "Use the model without training", "Use the encoder as it is"
ENCODER = "encoder, at 2 times the side"


def table_of(**rows: dict[str, float]) -> scores.Scores:
    tasks = list(next(iter(rows.values()), {}))
    filled = {
        row: {task: dict.fromkeys(scores.METRICS, v) for task, v in values.items()} for row, values in rows.items()
    }
    return scores.Scores(tasks, {row: scores.with_mean(values, tasks) for row, values in filled.items()}, {}, {})


def birds(**means: float) -> scores.Scores:
    return table_of(**{row: {"birds": value} for row, value in means.items()})


def advice_of(tmp_path: Path, table: scores.Scores, name: str = CANDIDATES[0][0], **changes: object) -> Advice:
    folder = tmp_path / "profiles/my birds/data/choice"
    write_choice(folder, ["birds", "flat"], name, **changes)
    return advise(chosen.read(folder), table, table, ["birds", "flat"], folder, tmp_path)


@pytest.mark.parametrize(
    ("means", "use", "place"),
    [
        ({"encoder": 50.0, "without_training": 52.0, "recommended": 55.0}, MODEL, "choice"),
        ({"encoder": 50.0, "without_training": 52.0, "recommended": 51.0}, BEST, "choice/without_training"),
        ({"encoder": 50.0, "without_training": 48.0, "recommended": 49.0}, PLAIN, "encoder"),
    ],
)
def test_advise__test_labels_decide_as_they_are_shown(tmp_path, means, use, place):
    advice = advice_of(tmp_path, birds(**means))
    assert (advice.use, advice.folder) == (use, f"'profiles/my birds/data/{place}'")
    assert any("disagree" in sentence for sentence in advice.why) == (use != MODEL)


def test_advise__without_labels_the_criterion_decides(tmp_path):
    advice = advice_of(tmp_path, birds())
    assert advice.use == MODEL and "35.0" in advice.why[0] and "75.0" in advice.why[0] and len(advice.why) == 1
    doubtful = {"encoder": [0.35, 0.3, 0.4], "recommended": [0.36, 0.3, 0.4], "difference": [0.01, -0.02, 0.04]}
    assert "chance" in advice_of(tmp_path, birds(), criterion={"mean": doubtful}).why[1]


@pytest.mark.parametrize(
    ("means", "name", "changes", "use"), [({}, ENCODER, {}, MODEL), ({}, "encoder", {"criterion": {}}, PLAIN)]
)
def test_advise__the_encoder_where_it_was_chosen_in_this_or_another_form(tmp_path, means, name, changes, use):
    advice = advice_of(tmp_path, birds(**means), name, **changes)
    assert advice.use == use and advice.folder.endswith("data/choice'")


def test_rows__tasks_with_and_without_labels_stand_in_one_list(tmp_path):
    labelled, flat = advice_of(tmp_path, birds(encoder=50.0, without_training=51.0, recommended=55.0)).rows
    assert (labelled.task, labelled.encoder, labelled.recommended) == ("birds", 50.0, 55.0)
    assert labelled.is_labelled and not flat.is_labelled and math.isnan(flat.recommended)
    assert labelled.criterion["recommended"].value == flat.criterion["recommended"].value == 75.0


@pytest.mark.parametrize(
    ("smoothed", "smooths", "after"), [(57.0, True, 57.0), (55.0, True, 55.0), (54.0, False, 55.0)]
)
def test_advise__smooths_unless_labels_show_a_loss(tmp_path, smoothed, smooths, after):
    advice = advice_of(tmp_path, birds(encoder=50.0, recommended=55.0, recommended_smoothed=smoothed))
    assert (advice.smooths, advice.before, advice.after) == (smooths, 50.0, after)
    assert advice.gains == {"birds": after - 50.0} and bool(advice.why) == (not smooths)


@pytest.mark.parametrize(
    ("first_hits", "named"), [((70.0, 72.0, 66.0), ["66.0", "72.0", "70.0"]), ((60.0, 61.0, 66.0), [])]
)
def test_advise__says_where_another_way_finds_more_first_hits(tmp_path, first_hits, named):
    table = birds(encoder=50.0, recommended=55.0, recommended_smoothed=57.0)
    for row, share in zip(table.rows.values(), first_hits, strict=True):
        row["mean"]["recall_at_1"] = share
    advice = advice_of(tmp_path, table)
    assert (advice.first_before, advice.first_after) == (first_hits[0], first_hits[2])
    assert re.findall(r"\b\d\d\.\d", " ".join(advice.why)) == named


def test_advise__the_encoder_with_smoothed_images_is_not_the_encoder_as_it_is(tmp_path):
    table = birds(encoder=50.0, encoder_smoothed=58.0, recommended=45.0)
    advice = advice_of(tmp_path, table)
    assert advice.use not in (MODEL, BEST, PLAIN) and (advice.row, advice.after) == ("encoder_smoothed", 58.0)
    assert [step.row for step in steps(table, advice.row)][-1] == "encoder_smoothed"
    known = headline.numbers(table, chosen.read(tmp_path / "profiles/my birds/data/choice"), table, advice)
    assert known["result"] == {"encoder": 50.0, "encoder_smoothed": 58.0} and "58" in (headline.spoken(known) or "")


def test_advise__where_the_encoder_was_not_measured_nothing_is_said_of_it(tmp_path):
    advice = advice_of(tmp_path, birds(recommended=55.0, recommended_smoothed=57.0))
    assert not any("nan" in sentence or "No test image" in sentence for sentence in advice.why)


def test_advise__commands_smooth_only_where_that_was_measured(tmp_path):
    """Without the row of a smoothed collection its images were too few, or not better off."""
    plain = advice_of(tmp_path, birds(encoder=50.0, recommended=55.0))
    assert not plain.smooths and plain.row == "recommended"
    folder, table = tmp_path / "data/choice", birds(encoder=50.0, recommended=55.0, recommended_smoothed=57.0)
    write_choice(folder, ["birds", "flat"])
    mixed = advise(chosen.read(folder), table, table, ["birds", "flat"], folder, tmp_path, ["flat"])
    assert mixed.smooths and "flat" in mixed.why[-1] and "--no-smooth" in mixed.why[-1]


@pytest.mark.parametrize(("without", "pays"), [(56.0, True), (58.0, False)])
def test_advise__says_where_the_last_layer_does_not_pay(tmp_path, without, pays):
    advice = advice_of(
        tmp_path,
        birds(encoder=50.0, resolution_smoothed=without, resolution=1.0, recommended=55.0, recommended_smoothed=57.0),
    )
    assert any("layer: none" in sentence for sentence in advice.why) == (not pays)


def test_advise__names_the_tasks_that_lose_by_smoothing(tmp_path):
    rows = {"encoder": (50.0, 50.0), "recommended": (55.0, 49.0), "recommended_smoothed": (60.0, 48.0)}
    table = table_of(**{row: dict(zip(("birds", "flat"), values, strict=True)) for row, values in rows.items()})
    advice = advice_of(tmp_path, table)
    assert advice.smooths and advice.falling == ["flat"]
    assert "flat −1.0" in advice.why[-1] and "--no-smooth" in advice.why[-1]


def test_falling__a_loss_of_less_than_one_query_is_too_few_to_tell(tmp_path):
    rows = {"encoder": (50.0, 50.0), "recommended": (60.0, 49.2), "recommended_smoothed": (60.0, 49.2)}
    table = table_of(**{row: dict(zip(("birds", "flat"), values, strict=True)) for row, values in rows.items()})
    for queries, falling, unclear in ((13, [], ["flat"]), (126, ["flat"], [])):
        advice = advice_of(tmp_path, replace(table, queries={"birds": queries, "flat": queries}))
        assert (advice.falling, advice.unclear) == (falling, unclear)
