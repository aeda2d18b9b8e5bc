"""What a profile's params.yaml is made of, and where its paths lead."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from polygrain.config import compose

ROOT = """\
root: .
seed: 0
tasks: {digits: {source: digits}, own: {source: folder}, far: {source: folder}}
paths: {digits: versions.yaml, own: data/raw/own, far: /far/away}
granularities: {k2: pseudo_labels/k2}
adaptors: &adaptors {k2: adaptor/k2}
fusions: {average: adaptor, neighbour: refreshed_graph}
models:
  encoder: encoder
  <<: *adaptors
  average: fusion/average
  neighbour: fusion/neighbour
tll: {example: {path: versions.yaml, weights: data/encoder}}
encoder: {path: encoders/vit48, rates: [0.00001, 1], weights: weights/net}
gsp_folds: {losses: {c1: {margin: 1}, c2: {margin: 2}}}
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text(ROOT)
    return tmp_path / "profiles"


def write(profiles: Path, name: str, text: str) -> Path:
    (profiles / name).mkdir(parents=True, exist_ok=True)
    (profiles / name / "values.yaml").write_text(text)
    return profiles / name


def composed(profiles: Path, text: str, **others: str) -> dict:
    for name, other in others.items():
        write(profiles, name, other)
    return compose.compose(write(profiles, "mine", text))


def test_compose__a_profile_without_differences_is_the_root_seen_from_there(profiles):
    root = YAML(typ="safe").load(ROOT)
    made = composed(profiles, "# nothing differs\n")
    assert made["root"] == "../.."
    assert made["paths"] == {"digits": "../../versions.yaml", "own": "../../data/raw/own", "far": "/far/away"}
    assert made["tasks"] == root["tasks"]
    assert made["tll"] == {}  # the root's runs of the papers are its own
    assert made["encoder"] == root["encoder"] | {"path": "../../encoders/vit48"}
    for name in ("seed", "granularities", "adaptors", "fusions", "models", "gsp_folds"):
        assert made[name] == root[name]


def test_compose__paths_are_seen_from_the_file_they_are_written_in(profiles):
    other = "tasks: {x: {path: data/raw/x}, y: {path: ../../y}}\nencoder: {path: data/mpcl_encoder/m1}\n"
    made = composed(profiles, "from: other\ntll: {z: {path: raw/z, weights: data/encoder}}\n", other=other)
    assert made["paths"] == {"x": "../other/data/raw/x", "y": "../../y"} and made["tasks"] == {"x": {}, "y": {}}
    assert made["encoder"]["path"] == "data/mpcl_encoder/m1"  # a stage of this profile makes it
    assert made["tll"] == {"z": {"path": "raw/z", "weights": "data/encoder"}}


def test_compose__merges_sections_and_replaces_lists(profiles):
    made = composed(profiles, "from: a\nencoder: {rates: [3]}\ntll: {}\n", a="seed: 1\nencoder: {path: x, rates: [2]}")
    assert made["seed"] == 1 and made["tll"] == {}
    assert made["encoder"] == {"path": "../a/x", "rates": [3], "weights": "weights/net"}
    assert list(composed(profiles, "tasks: {one: {path: a}}")["tasks"]) == ["one"]
    made = composed(profiles, "extend: [tasks]\ntasks: {one: {path: a}}")
    assert list(made["tasks"]) == list(made["paths"]) == ["digits", "own", "far", "one"]


def test_compose__a_family_lists_profiles_by_name(profiles):
    """They are as if each had a folder of its own, which hides one; a profile's own files list none."""
    (profiles / "paper").mkdir(parents=True)
    text = "# Two\n\na: {seed: 1, encoder: {path: ../../x}}\nb: {from: a, seed: 2}\n"
    (profiles / "paper/family.yaml").write_text(text)
    made = compose.compose(profiles / "b")
    assert made["seed"] == 2 and made["encoder"]["path"] == "../../x"
    assert compose.renew(profiles / "b") and not compose.renew(profiles / "b")
    assert "paper/family.yaml over" in (profiles / "b/params.yaml").read_text()
    assert [*compose.listed(profiles)] == ["a", "b"] and compose.source(profiles / "params") is None
    write(profiles, "a", "seed: 5\n")
    assert compose.compose(profiles / "a")["seed"] == 5
    assert composed(profiles, "from: b\n")["encoder"] == compose.compose(profiles / "a")["encoder"]


def test_compose__replace_empties_a_section_first(profiles):
    other = "gsp_folds: {losses: {c2: {base: 3}}}"
    assert composed(profiles, other)["gsp_folds"]["losses"] == {"c1": {"margin": 1}, "c2": {"margin": 2, "base": 3}}
    assert composed(profiles, f"replace: [gsp_folds.losses]\n{other}")["gsp_folds"] == {"losses": {"c2": {"base": 3}}}


def test_compose__a_value_may_stand_for_another(profiles):
    a = 'vars: {net: one, it: a}\nencoder: {rates: "${gsp_folds.losses}", weights: "nets/${vars.net}"}\n'
    made = composed(profiles, "from: a\nvars: {net: two}\ngsp_folds: {losses: {c1: {margin: 5}}}\n", a=a)
    assert made["encoder"]["rates"]["c1"] == {"margin": 5} and made["encoder"]["weights"] == "nets/two"
    assert "vars" not in made


def test_compose__short_lists_get_the_folders_that_dvc_needs(profiles):
    text = "granularities: [16, size4]\nfusions: [average, static]\n"
    made = composed(profiles, text)
    assert made["granularities"] == {"k16": "pseudo_labels/k16", "size4": "pseudo_labels/size4"}
    assert made["adaptors"] == {"k16": "adaptor/k16", "size4": "adaptor/size4"}
    assert made["fusions"] == {"average": "adaptor", "static": "knn_graph"}
    # The root's models that are made here, and one for each adaptor set.
    assert list(made["models"]) == ["k16", "size4", "encoder", "average"]
    made = composed(profiles, "fusions: []\nmodels: [encoder, avrage]\n")
    assert made["fusions"] == {}
    assert made["models"] == {"k2": "adaptor/k2", "encoder": "encoder", "avrage": "avrage"}  # the check names it


def test_compose__trains_on_all_of_its_own_granularities_unless_it_says_on_which(profiles):
    a, b = "granularities: [16, size4]\n", "from: a\nadaptors: [size4]\n"
    assert list(composed(profiles, "from: a\n", a=a)["adaptors"]) == ["k16", "size4"]
    assert composed(profiles, "from: b\n", a=a, b=b)["adaptors"] == {"size4": "adaptor/size4"}
    assert composed(profiles, "from: a\nadaptors: []\nfusions: []\nmodels: [encoder]\n", a=a)["adaptors"] == {}
    assert composed(profiles, "from: b\ngranularities: [8]\n", a=a, b=b)["adaptors"] == {"k8": "adaptor/k8"}


@pytest.mark.parametrize(
    ("target", "base", "expected"),
    [
        ("", "", {"blocks": 4, "mirrored": False}),
        ("distillation: {epochs: 8, target: {mirrored: true}}\n", "", {"blocks": 4, "mirrored": True}),
        ("", "distillation: {target: {mirrored: true}}\n", {"blocks": 4, "mirrored": True}),
        ("replace: [teacher, distillation.augmentation]\nextend: [teachers]\n", "", {"blocks": 4, "mirrored": False}),
    ],
)
def test_compose__profiles_of_before_lose_the_stages_that_are_gone(profiles, target, base, expected):
    (profiles.parent / "params.yaml").write_text(f"{ROOT}choice: {{reference: {{blocks: 4, mirrored: false}}}}\n")
    text = "from: base\ndistillations: []\nteachers: {}\nteacher: {look: {}}\n" + target
    made = composed(profiles, text + "choice: {reference: '${distillation.target}'}\n", base=base)
    assert made["choice"] == {"reference": expected}
    assert not made.keys() & {*compose.GONE, *compose.GONE.values()}


@pytest.mark.parametrize("value", ["5", "null", "average", "[5]"])
def test_compose__leaves_a_list_that_is_none_to_the_check(profiles, value):
    composed(profiles, "".join(f"{name}: {value}\n" for name in ("fusions", "models")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from: c\n", "from is 'c'; known here, each once: a, mine"),
        ("a: [1,\n", r"values.yaml cannot be read: [^\n]* line 2, [^\n]*$"),
        ("seed: 1\nb: {}\nseed: 2\n", r"mine/values.yaml: 'seed' is written twice, in lines 1 and 3: [^\n]*$"),
        ("a:\n  - {b: 1}\n  - b: 1\n    c: {d: 1}\n    b: 2\n", "'b' is written twice, in lines 3 and 5"),
        ("a: {b: 1, b: 2}\n", "'b' is written twice, in lines 1 and 1"),
        (
            "<<<<<<< HEAD\nseed: 1\n=======\nseed: 2\n>>>>>>> theirs\n",
            "mine/values.yaml has an unsolved merge conflict",
        ),
        ("distillations: [encoder]\n", "mine/values.yaml has distillations, and their stage is gone: remove them"),
        ("seed: ${teacher.look}\n", r"mine/values.yaml takes \${teacher.look}, whose stage is gone: write the value"),
        ("seed: ${nothing.there}\n", "mine/values.yaml: .*nothing"),
    ],
)
def test_compose__refuses(profiles, text, message):
    write(profiles, "a", "from: a\n")
    profile = write(profiles, "mine", text)
    with pytest.raises(ValueError, match=message):
        compose.renew(profile)
    assert not (profile / "params.yaml").exists()


def test_renew__writes_what_it_composed_and_only_if_it_differs(profiles):
    profile = write(profiles, "mine", "seed: 1\nencoder: {rates: [0.0000015]}\n")
    assert compose.renew(profile)
    text = (profile / "params.yaml").read_text()
    assert "values.yaml" in text.splitlines()[0] and "&" not in text
    assert compose.read_params(profile / "params.yaml") == compose.compose(profile)
    assert not compose.renew(profile)
    (profiles.parent / "params.yaml").write_text(ROOT.replace("margin: 2", "margin: 3"))
    assert compose.renew(profile)
    (profile / "values.yaml").unlink()  # from now on written by hand
    assert not compose.renew(profile)
    assert sorted(path.name for path in profile.iterdir()) == ["params.yaml"]


def test_missing__only_of_profiles_in_use(profiles):
    for name in "ab":
        write(profiles, name, "seed: 1\n")
    (profiles / "a/dvc.yaml").touch()
    assert [*compose.missing(profiles.parent)] == [profiles / "a/params.yaml"]
