import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from polygrain.app.export import card
from polygrain.encoder.config import Config
from polygrain.store.collection import TABLE
from tests.helpers.report_world import entry, write_task
from tests.helpers.report_world import write_model as write_evaluation
from tests.helpers.small import Model, adapted, write_encoder, write_model

DIFFERENCES = {"model.pt2": 0.0, "model.onnx": 1.5e-7}


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
    assert text.count(card.UNKNOWN) == 2 and ("/ np.float32(255)" in text) != uint8


def test_text__names_the_published_weights_it_came_from(tmp_path):
    config = Config(architecture="tf_efficientnet_lite0.in1k", size=64, resize=64, mean=(0.5,) * 3, std=(0.5,) * 3)
    text = card.text(Model(config), card.About("0", None, []), DIFFERENCES, True)
    head = YAML(typ="safe").load(text.removeprefix("---\n").partition("\n---\n")[0])
    assert head["base_model"] == "timm/tf_efficientnet_lite0.in1k" and head["license"] == "apache-2.0"
    assert head["pipeline_tag"] == "image-feature-extraction" and head["library_name"] == "onnx"


@pytest.mark.parametrize("on_all", [True, False])
def test_read_about__the_collection_stands_first_and_what_was_learnt_from_is_said(tmp_path, on_all):
    write_encoder(tmp_path / "choice")
    (tmp_path / "choice/choice.json").write_text(json.dumps({"name": "k4", "why": []}))
    for row, value in (("encoder", 0.4), ("chosen", 0.5)):
        write_evaluation(tmp_path / "evaluation" / row, {"dots": entry(value)}, {}, [])
    write_task(tmp_path / "images/dots", ["a", "b"], True, [])
    table = pq.read_table(tmp_path / "images/dots/table.parquet").to_pydict()
    table["trains"] = [on_all or split == "train" for split in table["split"]]
    pq.write_table(pa.table(table, TABLE), tmp_path / "images/dots/table.parquet")
    assert card.read_about(write_encoder(tmp_path / "bare")).tables == []
    tables = card.read_about(tmp_path / "choice").tables
    assert [round(chosen["dots"]["r_precision"], 2) for _, _, chosen in tables] == [0.4, 0.46, 0.5]
    assert [round(encoder["dots"]["r_precision"], 2) for _, encoder, _ in tables] == [0.3, 0.3, 0.4]
    assert ("no image of their classes" in tables[-1][0]) != on_all == ("half of its classes" not in tables[0][0])


@pytest.mark.parametrize("smoothed", [["dots"], []])
def test_read_about__no_table_of_smoothed_images_where_none_is(tmp_path, smoothed):
    write_encoder(tmp_path / "choice")
    (tmp_path / "choice/choice.json").write_text(json.dumps({"name": "k4", "why": []}))
    write_evaluation(tmp_path / "evaluation/chosen", {"dots": entry(0.5), "bars": entry(0.6)}, {}, [])
    file = tmp_path / "evaluation/chosen/smoothing.json"
    record = json.loads(file.read_text())
    for task in {"dots", "bars"} - {*smoothed}:
        record[task]["strength"] = 0.0
    file.write_text(json.dumps(record))
    tables = {words: list(chosen) for words, _, chosen in card.read_about(tmp_path / "choice").tables}
    assert [tasks for words, tasks in tables.items() if "smoothed" in words] == ([smoothed] if smoothed else [])
    assert next(iter(tables.values())) == ["dots", "bars"]


def test_table__what_was_not_measured_is_a_dash():
    assert "| dots | 50.0 | – | – | 0 |" in card.table("", {}, {"dots": {"r_precision": 0.5}})
