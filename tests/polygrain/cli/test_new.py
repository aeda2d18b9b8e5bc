import re
from pathlib import Path

import pytest
from PIL import Image
from ruamel.yaml import YAML
from typer.testing import CliRunner

from polygrain.cli.main import app
from polygrain.cli.new import channels, value_of
from polygrain.new import estimate
from tests.helpers.project import ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("params.yaml", "dvc.yaml", "versions.yaml", "encoders"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in (".dvc", ".git"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos").mkdir()
    for i in range(9):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / f"photos/{i}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "pass_time", lambda config: 0.001 * config.size)
    return tmp_path


def run(*words: str):
    return CliRunner().invoke(app, ["new", *words])


def test_new__writes_a_profile_and_says_what_it_chose(project):
    done = run("mine", "--images", "photos", "--encoder", "resnet50", "--side", "64", "--train")
    assert done.exit_code == 0, done.output
    found, lost, cost, smoothing, written = done.stdout.splitlines()
    assert found == "photos: 9 images without labels, so not evaluated"
    assert (
        lost.startswith("of note: photos: 9 images to train on, and the choice needs 50") and "--alike 6" in smoothing
    )
    assert re.fullmatch(
        r"cost: about .* on this machine, with resnet50.a1_in1k at 64 px, .*; without --train: about .*", cost
    )
    assert written == "wrote profiles/mine/values.yaml; next: polygrain run --profile mine"
    values = YAML(typ="safe").load((project / "profiles/mine/params.yaml").read_text())
    assert values["encoder"]["side"] == 64 and values["images"]["side"] == values["encoder"]["resize"] == 64


@pytest.mark.parametrize("folders", [1, 3])
def test_new__in_six_lines_at_most_and_numbers_of_one_are_right(project, folders):
    words, sizes = [], [(8, 8), (8, 8), (80, 8)]
    for number in range(folders):
        for i, size in enumerate(sizes):
            (project / f"f{number}/{i % 2}").mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size, (i, number, 0)).save(project / f"f{number}/{i % 2}/{i}.png")
        (project / f"f{number}/1/same.png").write_bytes((project / f"f{number}/0/0.png").read_bytes())
        (project / f"f{number}/list.txt").touch()
        words += ["--images", f"f{number}"]
    done = run("mine", *words, "--encoder", "encoders/vit48")
    assert done.exit_code == 0 and len(done.output.splitlines()) <= 6, done.output
    lost = done.stdout.splitlines()[1]
    assert "f0: 2 of 5 left out: 1 .txt, 1 copied; 1 of 4 images longer" in lost
    assert "; 1 picture in two classes, counted in the first of them only" in lost
    assert not re.search(r"\b1 \w+s\b", done.stdout)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("true", True), ("same", "same"), ("@same", "@same"), ("[", "[")]
)
def test_value_of__what_yaml_reads_or_the_text(text, value):
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine", "--images", "photos", "--encoder", "gone.pt"], "gone.pt"),
        (["mine", "--images", "photos", "--alike", "6", "--alike", "300"], "once for each of 1"),
        (["Mine", "--images", "photos"], "NAME"),
    ],
)
def test_new__says_what_is_wrong_and_writes_nothing(project, words, message):
    done = run(*words)
    assert done.exit_code == 1 and isinstance(done.exception, ValueError) and message in str(done.exception)
    assert not list(project.glob("profiles/*"))


def test_new__only_in_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is in no clone of this project: go to the folder that" in str(run("mine", "--images", "x").exception)


def test_new__a_copy_without_git_is_told_what_to_do(project):
    (project / ".git").rmdir()
    assert "is in no git repository, and DVC needs one: `git init" in str(run("mine", "--images", "photos").exception)


def test_channels__one_number_or_three():
    assert channels("--mean", None) is None
    assert channels("--mean", "0.5") == [0.5] * 3 and channels("--mean", "0.1,0.2,0.3") == [0.1, 0.2, 0.3]
    for wrong in ("", "1,2", "x,y,z"):
        with pytest.raises(ValueError, match=r"such as 0\.485,0\.456,0\.406"):
            channels("--mean", wrong)


def test_new__without_an_encoder_says_how_long_a_better_one_takes(project):
    """Also in a copy without git, where DVC is told to do without."""
    (project / ".git").rmdir()
    (project / ".dvc/config").write_text("[core]\n    no_scm = true\n")
    done = run("mine", "--images", "photos")
    assert done.exit_code == 0, done.output
    values = YAML(typ="safe").load((project / "profiles/mine/params.yaml").read_text())
    better = re.search(r"(--encoder vit_small\w+ --side 224): (about [\d.]+ (?:minutes|hours))", done.output)
    assert better and f"{better[1]}, {better[2]}" in values["report"]["better"]
    assert values["report"]["better"].startswith("polygrain new ") and "--images " in values["report"]["better"]
    assert values["encoder"]["side"] == values["images"]["side"] == 96  # the photographs have no more
