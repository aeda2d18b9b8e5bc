from pathlib import Path

import pytest
from pydantic import ValidationError

from polygrain.config.compose import read_params
from polygrain.config.lists import Lists, with_folders

ROOT = Path(__file__).parents[3]


@pytest.fixture
def values():
    params = read_params(ROOT / "params.yaml")
    return {key: params[key] for key in Lists.model_fields}


def test_lists__sizes_are_ascending(values):
    lists = Lists(**values).model_copy(update={"granularities": {"k256": "", "k16": "", "k64": ""}})
    assert list(lists.sizes.items()) == [("k16", 16), ("k64", 64), ("k256", 256)]


@pytest.mark.parametrize(
    "off",
    [
        "baselines",
        "supervised_models",
        "distillations",
        "mpcl",
        "tll",
        "mrt",
        "gsp_studies",
        "gsp_classifiers",
        "mpcl_detections",
    ],
)
def test_lists__each_branch_may_be_off(values, off):
    models = {name: folder for name, folder in values["models"].items() if not folder.startswith("distillation/")}
    Lists(**values | {"models": models, off: type(values[off])()})


def test_lists__all_but_the_tasks_may_be_empty(values):
    Lists(
        **{
            name: value if name in ("root", "versions", "seed", "tasks") else type(value)()
            for name, value in values.items()
        }
    )
    with pytest.raises(ValidationError, match="at least 1"):
        Lists(**values | {"tasks": {}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"distillations": {"encoder": "fusion/encoder"}}, "distillations.encoder is 'fusion/encoder'; known here"),
        ({"granularities": {}, "models": {}}, "fusions.average is 'adaptor'; known here: none"),
        (
            {name: {} for name in ("granularities", "models", "fusions", "distillations")}
            | {"baselines": {"linear": "x"}},
            "baselines lists 'linear', which needs granularities",
        ),
        ({"gsp": {"glyphs": "images/glyphs"}}, "gsp lists 'images/glyphs', on which no run of gsp_runs trains"),
        ({"supervised_models": {"x": {"on": "birds", "how": "full"}}}, "x.on is 'birds'; known here: all, digits"),
    ],
)
def test_lists__name_an_item_that_has_nothing_to_stand_on(values, change, message):
    with pytest.raises(ValidationError, match=message):
        Lists(**values | change)


def test_with_folders__is_what_the_root_says_itself(values):
    short = values | {name: list(values[name]) for name in ("fusions", "distillations", "models")}
    assert with_folders(short | {"granularities": [128, 256, 512]}) == values
