"""Files: what a profile's params.yaml is made of, where its paths lead, and when it is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from polygrain.config import compose

ROOT = """\
# The root.
root: .
seed: 0
tasks:
  digits: {source: digits, path: requirements.lock}
  own: {source: folder, path: data/raw/own}
  far: {source: folder, path: /far/away}
granularities: &granularities {k2: adaptor/k2}
models: {encoder: encoder, <<: *granularities}
tll:
  study: {path: requirements.lock, weights: data/encoder}
  other: {path: requirements.lock, weights: weights/net}
encoder: {path: encoders/vit48, rates: [0.00001, 1]}
gsp_folds: {backbone: {weights: encoder, path: requirements.lock}}
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text(ROOT)
    return tmp_path / "profiles"


def write(profiles: Path, name: str, text: str) -> Path:
    (profiles / name).mkdir(parents=True, exist_ok=True)
    (profiles / name / "values.yaml").write_text(text)
    return profiles / name


def values(profile: Path) -> dict:
    return YAML(typ="safe").load(compose.compose(profile))


def test_compose__a_profile_without_differences_is_the_root_seen_from_there(profiles: Path) -> None:
    assert values(write(profiles, "a", "# nothing differs\n")) == {
        "root": "../..",
        "seed": 0,
        "tasks": {
            "digits": {"source": "digits", "path": "../../requirements.lock"},
            "own": {"source": "folder", "path": "../../data/raw/own"},
            "far": {"source": "folder", "path": "/far/away"},
        },
        "granularities": {"k2": "adaptor/k2"},
        "models": {"encoder": "encoder", "k2": "adaptor/k2"},
        "tll": {
            "study": {"path": "../../requirements.lock", "weights": "data/encoder"},
            "other": {"path": "../../requirements.lock", "weights": "../../weights/net"},
        },
        "encoder": {"path": "../../encoders/vit48", "rates": [0.00001, 1]},
        "gsp_folds": {"backbone": {"weights": "encoder", "path": "../../requirements.lock"}},
    }


def test_compose__own_paths_are_seen_from_the_profile(profiles: Path) -> None:
    profile = write(profiles, "a", "encoder: {path: data/raw/net}\ntasks: {x: {source: folder, path: '../../y'}}\n")
    made = values(profile)
    assert (made["encoder"]["path"], made["tasks"]["x"]["path"]) == ("data/raw/net", "../../y")


def test_compose__paths_of_another_profile_are_seen_from_that_one(profiles: Path) -> None:
    tasks = "x: {source: folder, path: data/raw/x}, y: {source: folder, path: ../../y}"
    write(profiles, "a", f"tasks: {{{tasks}}}\nencoder: {{path: data/mpcl_encoder/m1}}\n")
    made = values(write(profiles, "b", "from: a\n"))
    assert {name: task["path"] for name, task in made["tasks"].items()} == {"x": "../a/data/raw/x", "y": "../../y"}
    assert made["encoder"]["path"] == "data/mpcl_encoder/m1"  # a stage of this profile makes it


def test_compose__from_profile_to_profile(profiles: Path) -> None:
    write(profiles, "a", "seed: 1\nencoder: {rates: [1]}\ngranularities: {k4: adaptor/k4}\n")
    write(profiles, "b", "from: a\nseed: 2\n")
    made = values(write(profiles, "c", "from: b\nencoder: {path: x}\n"))
    assert (made["seed"], made["encoder"]) == (2, {"path": "x", "rates": [1]})
    assert made["models"] == {"encoder": "encoder", "k4": "adaptor/k4"}


def test_compose__says_first_what_it_is_made_of(profiles: Path) -> None:
    write(profiles, "a", "seed: 1\n")
    profile = write(profiles, "b", "from: a\n")
    assert compose.compose(profile).splitlines()[:4] == [
        "# Composed from params.yaml and",
        "#   profiles/a/values.yaml",
        "#   profiles/b/values.yaml",
        "# Change those, not this file, and renew it: make compose PROFILE=b",
    ]
    assert compose.sources(profile / "params.yaml") == [
        profiles.parent / "params.yaml",
        profiles / "a/values.yaml",
        profiles / "b/values.yaml",
    ]
    assert compose.sources(profiles.parent / "params.yaml") == []


def test_compose__is_the_same_each_time_and_from_everywhere(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = write(profiles, "a", "gsp_folds: !new {z: 1, a: {c: 0.0000015, b: 1.0}}\n")
    text = compose.compose(profile)
    monkeypatch.chdir(profile)
    assert compose.compose(Path()) == text
    assert "&" not in text and "*" not in text and "!new" not in text
    assert values(profile)["gsp_folds"] == {"z": 1, "a": {"c": 0.0000015, "b": 1.0}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from: c\n", "profiles/b/values.yaml: from is 'c'; known here: a, b"),
        ("from: ../a\n", "from is '../a'; known here: a, b"),
        ("from: [a]\n", r"from is \['a'\]; known here: a, b"),
        ("from: a\n", "profiles go round in a circle: b from a from b; take out one `from:`"),
        ("from: b\n", "profiles go round in a circle: b from b"),
        ("root: ../..\n", "profiles/b/values.yaml: root is set by composing; leave it out"),
        ("- 1\n", "profiles/b/values.yaml should be a mapping of sections"),
        ("encodr: {}\n", "encodr is not a known key; known here: encoder, granularities, gsp_folds"),
    ],
)
def test_compose__refuses(profiles: Path, text: str, message: str) -> None:
    write(profiles, "a", "from: b\n")
    profile = write(profiles, "b", text)
    with pytest.raises(ValueError, match=message):
        compose.renew(profile)
    assert not (profile / "params.yaml").exists()


def test_renew__writes_only_what_has_changed(profiles: Path) -> None:
    profile = write(profiles, "a", "seed: 1\n")
    assert compose.renew(profile)
    before = (profile / "params.yaml").stat()
    assert not compose.renew(profile)
    after = (profile / "params.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    (profiles.parent / "params.yaml").write_text(ROOT.replace("rates: [0.00001, 1]", "rates: [2]"))
    assert compose.renew(profile)
    assert values(profile)["encoder"]["rates"] == [2]
    assert sorted(path.name for path in profile.iterdir()) == ["params.yaml", "values.yaml"]


def test_renew__leaves_the_old_file_where_it_cannot_write(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = write(profiles, "a", "seed: 1\n")
    compose.renew(profile)
    text = (profile / "params.yaml").read_text()
    (profile / "values.yaml").write_text("seed: 2\n")

    def full(*paths: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="full"):
        compose.renew(profile)
    assert (profile / "params.yaml").read_text() == text
    assert sorted(path.name for path in profile.iterdir()) == ["params.yaml", "values.yaml"]


def test_renew__never_overwrites_what_someone_wrote(profiles: Path) -> None:
    profile = write(profiles, "a", "seed: 1\n")
    (profile / "params.yaml").write_text("seed: 5\n")
    with pytest.raises(ValueError, match=r"was written by hand, and a/values.yaml .* remove params.yaml"):
        compose.renew(profile)
    assert (profile / "params.yaml").read_text() == "seed: 5\n"


def test_renew_missing__only_of_profiles_that_are_in_use(profiles: Path) -> None:
    for name in "abc":
        write(profiles, name, "seed: 1\n")
    (profiles.parent / "dvc.yaml").write_text("stages: {}\n")
    for name in "ab":
        (profiles / name / "dvc.yaml").symlink_to("../../dvc.yaml")
    compose.renew(profiles / "a")
    (profiles / "a/values.yaml").write_text("seed: 2\n")
    compose.renew_missing(profiles.parent)
    assert [(profiles / name / "params.yaml").exists() for name in "abc"] == [True, True, False]
    assert "seed: 1\n" in (profiles / "a/params.yaml").read_text()  # renewed when it is run


def test_require__a_profile_that_is_written_by_hand(profiles: Path) -> None:
    profile = write(profiles, "a", "seed: 1\n")
    compose.renew(profile)
    (profile / "values.yaml").unlink()
    for look in (compose.renew, lambda folder: compose.require(folder / "params.yaml")):
        with pytest.raises(ValueError, match=r"was composed, and the values.yaml beside it is gone"):
            look(profile)
    text = (profile / "params.yaml").read_text()
    (profile / "params.yaml").write_text(text.partition("PROFILE=a\n")[2])
    compose.require(profile / "params.yaml")
    assert not compose.renew(profile)
    compose.require(profiles.parent / "params.yaml")


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polygrain.config.compose", *arguments]
    environment = os.environ | {"PYTHONPATH": str(Path(compose.__file__).parents[2])}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def test_main__one_or_all(profiles: Path) -> None:
    for name in "abc":
        write(profiles, name, "seed: 1\n")
    assert run(profiles.parent, "profiles/b").stdout == "composed profiles/b/params.yaml\n"
    assert run(profiles.parent).stdout == "composed profiles/a/params.yaml\ncomposed profiles/c/params.yaml\n"
    assert run(profiles.parent).stdout == ""
    done = run(profiles.parent, "profiles/z")
    assert (done.returncode, done.stderr) == (1, "error: there is no profile z; known here: a, b, c\n")
    (profiles / "b/values.yaml").write_text("sed: 1\n")
    done = run(profiles.parent, "profiles/b")
    assert done.returncode == 1 and done.stderr.startswith("error: profiles/b/values.yaml: sed is not a known key")
