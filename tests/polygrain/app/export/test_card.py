import json

import numpy as np
import pytest
from PIL import Image
from ruamel.yaml import YAML

from polygrain.app.export import card
from polygrain.app.export.targets import TARGETS
from polygrain.encoder.config import Config
from polygrain.encoder.views import squares_along
from tests.helpers.small import Model, adapted, write_encoder, write_model

DIFFERENCES = {target.FILE: 1.5e-7 for target in TARGETS}


def test_plain__leaves_nothing_to_markdown_or_html():
    assert card.plain("two\n| words *and* <b>\u202e") == r"two \| words \*and\* \<b\>\\u202e"


@pytest.mark.parametrize("uint8, words", [(True, "uint8; normalised"), (False, "float32 in 0..1; normalised")])
def test_text__of_a_bare_model_says_what_is_not_known(tmp_path, uint8, words):
    folder = write_encoder(tmp_path / "encoder")
    model: Model = adapted(folder, ["k4"], 0)
    text = card.text(model, card.read_about(write_model(model, tmp_path / "bare")), DIFFERENCES, uint8)
    head, body = text.removeprefix("---\n").split("\n---\n")
    assert YAML(typ="safe").load(head)["license"] == "unknown" and "base_model" not in head
    assert body.startswith("# A model of vit\\_tiny\\_patch16\\_224\n") and words in body
    assert text.count(card.UNKNOWN) == 3 and ("/ np.float32(255)" in text) != uint8


@pytest.mark.parametrize("ink", [0, 234, 236])
def test_text__its_code_prepares_a_sign_on_nothing_as_the_pipeline_does(tmp_path, ink):
    model = Model(Config(architecture="resnet10t", size=32, resize=32, mean=(0.5,) * 3, std=(0.5,) * 3))
    prepare = prepared_by(card.text(model, card.About("0", None, {}), DIFFERENCES, True))
    image = Image.new("RGBA", (60, 40), (255 - ink, 0, 0, 0))
    image.paste((ink, ink, ink, 255), (25, 5, 35, 30))
    image.save(tmp_path / "sign.png")
    np.testing.assert_array_equal(prepare(tmp_path / "sign.png"), model.transform(image)[None])


def prepared_by(text):
    """The function of a card's code."""
    exec(text.partition("```python\n")[2].partition("\n\n\nfiles = ")[0], names := {})
    return names["prepare"]


@pytest.mark.parametrize("size", [(60, 60), (70, 50), (71, 50), (75, 50), (50, 112), (90, 270), (400, 50), (1, 900)])
def test_text__its_code_prepares_wide_and_tall_images_as_the_pipeline_does(tmp_path, size):
    whole = Config(architecture="resnet10t", size=32, resize=37, shape="whole", mean=(0.5,) * 3, std=(0.5,) * 3)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    image.save(tmp_path / "image.png")
    for shape in ("whole", "crop"):
        model = Model(whole.model_copy(update={"shape": shape}))
        about, seen = card.About("0", None, {}), model.transform(image)[None]
        prepare = prepared_by(card.text(model, about, DIFFERENCES, True, free=shape == "whole"))
        np.testing.assert_array_equal(prepare(tmp_path / "image.png"), seen)
        prepare = prepared_by(card.text(model, about, DIFFERENCES, True))
        squares = squares_along(seen) if shape == "whole" else [seen]
        np.testing.assert_array_equal(prepare(tmp_path / "image.png"), np.concatenate(squares))


def test_text__names_the_published_weights_it_came_from(tmp_path):
    config = Config(architecture="tf_efficientnet_lite0.in1k", size=64, resize=64, mean=(0.5,) * 3, std=(0.5,) * 3)
    text = card.text(Model(config), card.About("0", None, {}), DIFFERENCES, True)
    head = YAML(typ="safe").load(text.removeprefix("---\n").partition("\n---\n")[0])
    assert head["base_model"] == "timm/tf_efficientnet_lite0.in1k" and head["license"] == "apache-2.0"
    assert head["pipeline_tag"] == "image-feature-extraction" and head["library_name"] == "onnx"


def test_scored__a_criterion_is_told_from_a_result():
    result, criterion = card.scored({"result": {"encoder": 42.0}, "criterion": {"encoder": 87.0}}).splitlines()
    assert "R-Precision" in result and "%" in result and "R-Precision" not in criterion and "%" not in criterion


def test_read_about__the_numbers_of_the_report_beside_the_model(tmp_path):
    write_encoder(tmp_path / "choice")
    (tmp_path / "choice/choice.json").write_text(json.dumps({"name": "k4", "why": []}))
    assert card.read_about(tmp_path / "choice").scores == {}
    (tmp_path / "report").mkdir()
    (tmp_path / "report/headline.json").write_text('{"r_precision": {"encoder": 31.24, "a|b": 40.4}}')
    scores = card.read_about(tmp_path / "choice").scores
    line = card.scored(scores)
    assert "R-Precision" in line and line.endswith(r"encoder 31.2, a\|b 40.4")
    (tmp_path / "report/headline.json").write_text('{"r_precision": 5}')
    with pytest.raises(ValueError, match=r"headline\.json"):
        card.read_about(tmp_path / "choice")
