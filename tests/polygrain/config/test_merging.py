"""Each rule at the head of `merging`, one after the other, and each slip of the pen."""

import pytest

from polygrain.config import merging
from polygrain.config.merging import New

ROOT = """\
seed: 0
rows: &rows {a: ra, b: rb}
models: {pixels: images, <<: *rows}
runs:
  one: {images: x, loss: c2, values: {}}
  two: {images: x, loss: c3, values: {mu: 1}}
view: {crop: 0.5, flip: 0}
fusion:
  augmentation: &views
    epochs: 3
    augmentation: {crop: 0.5, flip: 0}
  neighbour: &neighbour
    epochs: 4
    augmentation: {crop: 0.6, flip: 0}
    refresh: true
  static: {<<: *neighbour, refresh: false}
baseline:
  one_set: *views
  many_sets: *views
mpcl:
  views:
    - &view {turn: 1, blur: 2}
    - *view
probe:
  view: *view
  shares: [1, 2]
  losses: {c2: {margin: 1}}
  nothing: null
"""
LISTS = {"rows", "models", "runs"}


def made(*overs: str) -> dict:
    """The root with each of these laid over it."""
    values = merging.tree(ROOT)
    for over in overs:
        values = merging.merge(values, merging.parse(over, "values.yaml"), LISTS, "values.yaml")
    return merging.resolve(values, values)


def test_tree__nothing_laid_over_it_is_the_file_as_yaml_has_it() -> None:
    assert made() == merging.YAML(typ="safe").load(ROOT)


def test_merge__key_by_key_to_any_depth() -> None:
    assert made("fusion: {neighbour: {augmentation: {flip: 1}}}")["fusion"]["neighbour"] == {
        "epochs": 4,
        "augmentation": {"crop": 0.6, "flip": 1},
        "refresh": True,
    }


@pytest.mark.parametrize(
    ("over", "where", "expected"),
    [
        ("seed: 3", ("seed",), 3),
        ("probe: {shares: [9]}", ("probe", "shares"), [9]),
        ("probe: {losses: null}", ("probe", "losses"), None),
        ("probe: {nothing: {a: 1}}", ("probe", "nothing"), {"a": 1}),
        ("view: {flip: 0}", ("view",), {"crop": 0.5, "flip": 0}),
    ],
)
def test_merge__what_is_no_mapping_is_replaced(over: str, where: tuple[str, ...], expected: object) -> None:
    assert merging.found_at(made(over), where) == expected


def test_merge__a_list_is_replaced_whole() -> None:
    assert made("runs: {three: {images: y, loss: c4, values: {}}}")["runs"] == {
        "three": {"images": "y", "loss": "c4", "values": {}}
    }
    assert made("runs: {}")["runs"] == {}


def test_merge__the_row_of_all_rows_changes_those_that_are_there() -> None:
    assert made('runs: {"*": {images: y}}')["runs"] == {
        "one": {"images": "y", "loss": "c2", "values": {}},
        "two": {"images": "y", "loss": "c3", "values": {"mu": 1}},
    }


def test_merge__the_row_of_all_rows_gives_to_those_beside_it() -> None:
    over = 'runs: {"*": {images: y, loss: c2, values: {}}, three: {}, four: {loss: c9, values: {mu: 3}}}'
    assert made(over)["runs"] == {
        "three": {"images": "y", "loss": "c2", "values": {}},
        "four": {"images": "y", "loss": "c9", "values": {"mu": 3}},
    }


def test_merge__more_rows_join_those_that_are_there() -> None:
    over = 'runs: !more {"*": {images: y}, two: {values: !new {nu: 2}}, three: {loss: c9, values: {}}}'
    assert made(over)["runs"] == {
        "one": {"images": "y", "loss": "c2", "values": {}},
        "two": {"images": "y", "loss": "c3", "values": {"nu": 2}},
        "three": {"images": "y", "loss": "c9", "values": {}},
    }
    assert made("rows: !more {c: rc, a: ra2}")["models"] == {"pixels": "images", "a": "ra2", "b": "rb", "c": "rc"}
    with pytest.raises(ValueError, match=r"values.yaml: runs.two.los is not a known key; known here: images, loss"):
        made("runs: !more {two: {los: c9}}")
    with pytest.raises(ValueError, match=r"values.yaml: view is a section and no list, so !more says nothing"):
        made("view: !more {crop: 1}")


def test_merge__new_takes_the_place_and_its_keys_are_free() -> None:
    assert made("probe: {losses: !new {c9: {a: 1}}}")["probe"]["losses"] == {"c9": {"a": 1}}
    assert made("view: !new {x: 1}")["view"] == {"x": 1}
    over = "probe: {losses: !new {c9: {a: 1}}}"
    assert made(over, "probe: {losses: {c9: {a: 2}}}")["probe"]["losses"] == {"c9": {"a": 2}}


def test_merge__an_alias_follows() -> None:
    values = made("fusion: {augmentation: {epochs: 9, augmentation: {flip: 1}}}")
    assert values["baseline"]["one_set"] == values["baseline"]["many_sets"] == values["fusion"]["augmentation"]
    assert values["fusion"]["augmentation"] == {"epochs": 9, "augmentation": {"crop": 0.5, "flip": 1}}
    assert made("fusion: {augmentation: !new {x: 1}}")["baseline"]["one_set"] == {"x": 1}


def test_tree__an_alias_of_a_single_value_and_a_merge_of_two() -> None:
    values = merging.tree("a: &k 5\nb: {c: *k}\n")
    over = merging.merge(values, {"a": 7}, set(), "values.yaml")
    assert merging.resolve(over, over) == {"a": 7, "b": {"c": 7}}
    over = merging.merge(values, {"b": {"c": 7}}, set(), "values.yaml")
    assert merging.resolve(over, over) == {"a": 5, "b": {"c": 7}}
    with pytest.raises(ValueError, match=r"params.yaml: c.<< takes one alias, such as `<<: \*views`"):
        merging.tree("a: &a {x: 1}\nb: &b {y: 2}\nc: {<<: [*a, *b]}\n")


def test_merge__an_alias_keeps_a_value_of_its_own() -> None:
    own = "baseline: {one_set: {augmentation: {flip: 7}}}"
    for overs in ((own, "fusion: {augmentation: {epochs: 9}}"), ("fusion: {augmentation: {epochs: 9}}", own)):
        values = made(*overs)
        assert values["baseline"]["one_set"] == {"epochs": 9, "augmentation": {"crop": 0.5, "flip": 7}}
        assert values["baseline"]["many_sets"] == values["fusion"]["augmentation"]
        assert values["fusion"]["augmentation"] == {"epochs": 9, "augmentation": {"crop": 0.5, "flip": 0}}


def test_merge__what_is_merged_follows_but_for_its_own_keys() -> None:
    over = "fusion: {neighbour: {epochs: 8, refresh: null, augmentation: {flip: 1}}}"
    assert made(over)["fusion"]["static"] == {
        "epochs": 8,
        "augmentation": {"crop": 0.6, "flip": 1},
        "refresh": False,
    }
    values = made("fusion: {static: {augmentation: {crop: 1}}}", over)
    assert values["fusion"]["static"]["augmentation"] == {"crop": 1, "flip": 1}
    assert values["fusion"]["neighbour"]["augmentation"] == {"crop": 0.6, "flip": 1}


def test_merge__rows_that_follow_another_list_go_on_following() -> None:
    assert made("rows: {c: rc}")["models"] == {"c": "rc", "pixels": "images"}
    assert made("rows: {c: rc}", "models: {encoder: e}")["models"] == {"c": "rc", "encoder": "e"}
    assert made("models: {encoder: e}", "rows: {c: rc}")["models"] == {"c": "rc", "encoder": "e"}
    assert made("models: !new {encoder: e}")["models"] == {"encoder": "e"}


def test_merge__an_alias_into_a_list_of_values() -> None:
    values = made("mpcl: {views: [{turn: 5, blur: 6}, {turn: 7, blur: 8}]}")
    assert values["probe"]["view"] == {"turn": 5, "blur": 6}
    with pytest.raises(
        ValueError, match=r"probe.view is the same as mpcl.views.0 .* give probe.view a value of its own"
    ):
        made("mpcl: {views: []}")
    assert made("mpcl: {views: []}\nprobe: {view: !new {turn: 0}}")["probe"]["view"] == {"turn": 0}


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("fusoin: {}", r"values.yaml: fusoin is not a known key; known here: baseline, fusion, models, mpcl, probe"),
        (
            "fusion: {neighbour: {epoch: 1}}",
            r"fusion.neighbour.epoch is not a known key; known here: augmentation, epochs, refresh; where names",
        ),
        (
            "fusion: {static: {augmentation: {crp: 1}}}",
            r"fusion.static.augmentation.crp is not .*known here: crop, flip",
        ),
        (
            "baseline: {one_set: {epoch: 1}}",
            r"baseline.one_set.epoch is not a known key; known here: augmentation, epochs",
        ),
        ("probe: {losses: {c9: {}}}", r"probe.losses.c9 is not .*put !new before the whole of probe.losses"),
        ('runs: {"*": {image: y}}', r"runs.one.image is not a known key; known here: images, loss, values"),
    ],
)
def test_merge__refuses_a_key_that_is_not_known(over: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(over)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "v.yaml should be a mapping of sections"),
        ("3", "v.yaml should be a mapping of sections"),
        ("!new {a: 1}", "v.yaml should be a mapping of sections"),
        ("a: [1,\n", "v.yaml cannot be read as YAML"),
        ("a: 1\na: 2\n", "(?s)v.yaml cannot be read as YAML.*duplicate key"),
        ("a: {b: !new 3}", "v.yaml: a.b has the tag !new; known here: !new, before a mapping"),
        ("a: !new [1]", "v.yaml: a has the tag !new; known here: !new and !more, before a mapping"),
        ("a: !new", "v.yaml: a has the tag !new"),
        ("a: {b: !more {c: 1}}", "v.yaml: a.b has the tag !more; known here: !new, before a mapping"),
        ("a: [{b: !old {}}]", "v.yaml: a.0.b has the tag !old"),
    ],
)
def test_parse__refuses_what_says_nothing(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merging.parse(text, "v.yaml")


def test_parse__a_name_given_to_a_value_goes_no_further() -> None:
    found = merging.parse("a: &a 3\nb: &b true\nc: &c x\nd: &d 1.50\ne: &e [*a, *b, *c, *d]\nf: *e\n", "v.yaml")
    values = [3, True, "x", 1.5]
    assert found == {"a": 3, "b": True, "c": "x", "d": 1.5, "e": values, "f": values}
    assert list(map(type, found["e"])) == [int, bool, str, float]


def test_parse__a_file_of_comments_changes_nothing() -> None:
    assert merging.parse("# nothing yet\n", "v.yaml") == {}


def test_parse__reads_numbers_as_dvc_does_and_own_anchors() -> None:
    text = "a: &a {x: 1e-3, y: 012, z: yes}\nb: {<<: *a, y: 1}\nc: !new {d: *a}\n"
    found = merging.parse(text, "v.yaml")
    own = {"x": 0.001, "y": 12, "z": "yes"}
    assert found == {"a": own, "b": own | {"y": 1}, "c": {"d": own}}
    assert isinstance(found["c"], New) and not isinstance(found["a"], New)
