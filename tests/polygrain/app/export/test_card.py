import json

import pytest

from polygrain.app.export import card
from tests.helpers.small import Model, adapted, write_encoder, write_model

DIFFERENCES = {"model.pt2": 0.0, "model.onnx": 1.5e-7}


def test_plain__leaves_nothing_to_markdown_or_html():
    assert card.plain("two\n| words *and* <b>\u202e") == r"two \| words \*and\* \<b\>\\u202e"


@pytest.mark.parametrize("uint8, words", [(True, "uint8; normalised"), (False, "float32 in 0..1; normalised")])
def test_text__of_a_bare_model_says_what_is_not_known(tmp_path, uint8, words):
    folder = write_encoder(tmp_path / "encoder")
    model: Model = adapted(folder, ["k4"], 0)
    text = card.text(model, card.read_about(write_model(model, tmp_path / "bare")), DIFFERENCES, uint8)
    assert text.startswith("# A model of vit\\_tiny\\_patch16\\_224\n") and words in text
    assert text.count(card.UNKNOWN) == 2 and ("/ np.float32(255)" in text) != uint8


def test_read_about__finds_the_evaluation_beside_a_chosen_model_only(tmp_path):
    for name in ("choice", "bare"):
        write_encoder(tmp_path / name)
    (tmp_path / "evaluation/chosen").mkdir(parents=True)
    (tmp_path / "evaluation/chosen/metrics.json").write_text('{"dots": {"r_precision": 0.5}}')
    (tmp_path / "choice/choice.json").write_text(json.dumps({"name": "k4", "why": []}))
    assert card.read_about(tmp_path / "bare").chosen == {}
    about = card.read_about(tmp_path / "choice")
    assert about.chosen == {"dots": {"r_precision": 0.5}} and about.encoder == {}
    assert "| dots | 50.0 | – | – | 0 |" in card.table(about.encoder, about.chosen)
