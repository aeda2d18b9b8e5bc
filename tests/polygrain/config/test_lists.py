from pathlib import Path

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from polygrain.config.lists import Lists
from polygrain.config.schema import Section

ROOT = Path(__file__).parents[3]


@pytest.fixture
def values():
    return YAML(typ="safe").load((ROOT / "params.yaml").read_text())


def test_lists__sizes_are_ascending(values):
    lists = Lists(**{key: values[key] for key in Lists.model_fields})
    shuffled = lists.model_copy(update={"granularities": {"k256": "", "k16": "", "k64": ""}})
    assert list(shuffled.sizes.items()) == [("k16", 16), ("k64", 64), ("k256", 256)]


def test_section__bends_no_type_and_has_no_default():
    class Example(Section):
        epochs: int
        rate: float

    assert Example(epochs=1, rate=1).rate == 1.0
    for wrong in ({"epochs": "1", "rate": 1.0}, {"epochs": 1}, {"epochs": 1, "rate": 1.0, "more": 1}):
        with pytest.raises(ValidationError):
            Example(**wrong)


@pytest.mark.parametrize(
    ("distillations", "message"),
    [
        ({"encoder": "fusion/encoder"}, "distillations.encoder is 'fusion/encoder'; known here: encoder: resolution"),
        ({"static": "fusion/static"}, "distillations.static is 'fusion/static'"),
        ({}, "at least 1 item"),
    ],
)
def test_lists__distil_the_encoder_or_a_fusion_that_is_made(values, distillations, message):
    lists = {key: values[key] for key in Lists.model_fields} | {"distillations": distillations}
    with pytest.raises(ValidationError, match=message):
        Lists(**lists)
