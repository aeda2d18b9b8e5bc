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


def test_clusters__from_few_to_many_by_their_number_or_their_size(values):
    names = ["k256", "size4", "k16", "size24", "size1000"]
    lists = Lists(**values).model_copy(update={"granularities": dict.fromkeys(names, "")})
    found = lists.clusters(500)
    assert list(found.items()) == [("size1000", 1), ("k16", 16), ("size24", 20), ("size4", 125), ("k256", 256)]


def test_trained__the_coarsest_first(values):
    names = ["size2", "k64", "size24", "k512", "size8"]
    lists = Lists(**values).model_copy(update={"adaptors": dict.fromkeys(names, "")})
    assert lists.trained == ["k64", "k512", "size24", "size8", "size2"]


def test_lists__all_but_the_tasks_may_be_empty(values):
    kept = ("root", "versions", "seed", "tasks", "paths")
    Lists(**{name: value if name in kept else type(value)() for name, value in values.items()})
    with pytest.raises(ValidationError, match="at least 1"):
        Lists(**values | {"tasks": {}})
    with pytest.raises(ValidationError, match=r"paths\.digits or tasks\.digits is missing"):
        Lists(**values | {"paths": {name: "x" for name in values["tasks"] if name != "digits"}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adaptors": {}, "models": {}}, "fusions.average is 'adaptor'; known here: none"),
        ({"granularities": {"k128": "pseudo_labels/k128"}}, "adaptors.k512 is .*; known here: k128: adaptor/k128 "),
        ({"granularities": {"k128": "adaptor/k128"}}, "granularities.k128 is"),
        ({"gsp": {"glyphs": "images/glyphs"}}, "gsp.glyphs is 'images/glyphs'; known here: gsp_collage/collage"),
        ({"supervised_models": {"x": {"on": "birds", "how": "full"}}}, "x.on is 'birds'; known here: all, digits"),
    ],
)
def test_lists__name_an_item_that_has_nothing_to_stand_on(values, change, message):
    with pytest.raises(ValidationError, match=message):
        Lists(**values | change)


def test_with_folders__is_what_the_root_says_itself(values):
    short = values | {name: list(values[name]) for name in ("fusions", "models")}
    short |= {"granularities": [128, "k256", 512]}
    assert with_folders(short | {"adaptors": ["k128", "k512"]}) == values
    every = with_folders(short | {"adaptors": ["k128", "k256", "k512"]})
    assert with_folders(short | {"adaptors": "all"}) == every != values


def test_with_folders__a_model_for_each_adaptor_alone(values):
    short = values | {"granularities": ["size2", "size8", 16], "adaptors": ["size8"], "models": ["encoder"]}
    made = with_folders(short)
    assert made["granularities"] == {name: f"pseudo_labels/{name}" for name in ("size2", "size8", "k16")}
    assert made["adaptors"] == {"size8": "adaptor/size8"}
    assert made["models"] == {"size8": "adaptor/size8", "encoder": "encoder"}


def test_with_folders__models_as_profiles_of_before_named_them(values):
    given = with_folders(values | {"models": ["encoder", "untrained", "chosen"]})["models"]
    assert list(given)[-2:] == ["without_training", "recommended"]
