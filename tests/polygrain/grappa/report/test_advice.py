import math
from pathlib import Path

import pytest

from polygrain.grappa.report import chosen, scores
from polygrain.grappa.report.advice import Advice, advise
from tests.helpers.report_world import CANDIDATES, write_choice

ENCODER = "encoder, at 2 times the side, with its mirror image"


def table_of(**means: float) -> scores.Scores:
    """Scores on one task, `birds`."""
    rows = {row: {"birds": dict.fromkeys(scores.METRICS, value)} for row, value in means.items()}
    numbers = {row: scores.with_mean(found, ["birds"]) for row, found in rows.items()}
    return scores.Scores(["birds"] if rows else [], numbers, {}, dict.fromkeys(["birds"] * len(rows), 12))


def advice_of(tmp_path: Path, table: scores.Scores, chosen_one: str = CANDIDATES[0][0], **said: object) -> Advice:
    folder = tmp_path / "profiles/my birds/data/choice"
    write_choice(folder, ["birds", "flat"], chosen_one, **said)
    return advise(chosen.read(folder), table, ["birds", "flat"], folder, tmp_path)


@pytest.mark.parametrize(
    "means, use, place",
    [
        ({"encoder": 50.0, "untrained": 52.0, "chosen": 55.0}, "Use the model", "choice"),
        ({"encoder": 50.0, "untrained": 52.0, "chosen": 52.04}, "Use the model", "choice"),
        ({"encoder": 50.0, "untrained": 52.0, "chosen": 51.0}, "Use the encoder at its best", "choice/untrained"),
        ({"encoder": 50.0, "untrained": 48.0, "chosen": 49.0}, "Use the encoder as it is", "encoder"),
        ({"encoder": 50.0, "chosen": 55.0}, "Use the model", "choice"),
    ],
)
def test_advise__test_labels_decide_as_they_are_shown(tmp_path, means, use, place):
    advice = advice_of(tmp_path, table_of(**means))
    assert advice.use == use
    assert advice.folder == f"'profiles/my birds/data/{place}'"
    assert f"the model {means['chosen']:.1f} %" in advice.why[0] and "as it is 50.0 %" in advice.why[0]
    assert ("say otherwise" in advice.why[-1]) == (use != "Use the model")


def test_advise__names_the_tasks_that_fall(tmp_path):
    table = table_of(encoder=50.0, chosen=55.0)
    both = {row: found | {"cars": dict.fromkeys(scores.METRICS, 40.0)} for row, found in table.rows.items()}
    both["chosen"]["cars"] = dict.fromkeys(scores.METRICS, 39.0)
    rows = {row: scores.with_mean(found, ["birds", "cars"]) for row, found in both.items()}
    advice = advice_of(tmp_path, scores.Scores(["birds", "cars"], rows, {}, {}))
    assert advice.use == "Use the model"
    assert advice.why[1] == "Less is found on cars −1.0: for these alone use the encoder."


def test_advise__without_labels_the_criterion_decides(tmp_path):
    advice = advice_of(tmp_path, table_of())
    assert advice.use == "Use the model"
    assert "35.0 for the encoder, 75.0 for what was chosen" in advice.why[0]
    doubtful = {"encoder": [0.35, 0.3, 0.4], "chosen": [0.36, 0.3, 0.4], "difference": [0.01, -0.02, 0.04]}
    advice = advice_of(tmp_path, table_of(), criterion={"mean": doubtful})
    assert "may be chance" in advice.why[1]


def test_advise__another_form_of_the_encoder_is_no_model(tmp_path):
    assert advice_of(tmp_path, table_of(), ENCODER).use == "Use the encoder at its best"
    advice = advice_of(tmp_path, table_of(encoder=50.0, chosen=55.0), ENCODER)
    assert advice.use == "Use the encoder at its best" and advice.folder.endswith("data/choice'")
    assert "the encoder in its chosen form 55.0 %" in advice.why[0]


def test_advise__the_encoder_where_nothing_is_better_or_nothing_can_be_told(tmp_path):
    for criterion, words in (({}, "cannot be told"), (None, "cannot be told")):
        advice = advice_of(tmp_path, table_of(), "encoder", criterion=criterion)
        assert advice.use == "Use the encoder as it is" and words in advice.why[0]
    advice = advice_of(tmp_path, table_of(encoder=50.0, chosen=50.0), "encoder")
    assert advice.use == "Use the encoder as it is" and "No candidate was better" in advice.why[0]


def test_rows__tasks_with_and_without_labels_stand_in_one_list(tmp_path):
    birds, flat = advice_of(tmp_path, table_of(encoder=50.0, untrained=51.0, chosen=55.0)).rows
    assert (birds.task, birds.encoder, birds.untrained, birds.model) == ("birds", 50.0, 51.0, 55.0)
    assert birds.is_labelled and not flat.is_labelled and math.isnan(flat.model)
    assert birds.criterion["chosen"].value == flat.criterion["chosen"].value == 75.0
