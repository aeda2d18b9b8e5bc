"""The package alone: a wheel, unpacked where nothing else is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from polygrain.cli.init import PROJECT
from polygrain.cli.main import app
from tests.helpers.project import ROOT


def test_init__lays_out_the_project_and_keeps_what_is_there(tmp_path):
    done = CliRunner().invoke(app, ["init", str(tmp_path / "mine")])
    assert done.exit_code == 0, done.output
    for name in (*PROJECT, "polygrain/cli/init.py"):
        assert (tmp_path / "mine" / name).exists()
    assert (tmp_path / "mine/dvc.yaml").read_bytes() == (ROOT / "dvc.yaml").read_bytes()
    assert os.access(tmp_path / "mine/stages/run", os.X_OK) and not list((tmp_path / "mine").rglob("__pycache__"))
    (tmp_path / "mine/dvc.yaml").write_text("my own")
    again = CliRunner().invoke(app, ["init", str(tmp_path / "mine")])
    assert isinstance(again.exception, ValueError) and (tmp_path / "mine/dvc.yaml").read_text() == "my own"


@pytest.fixture
def installed(tmp_path):
    """Runs a command with the package as a wheel has it, in a folder that no clone holds."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "wheels")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")

    def run(folder: Path, *words: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "DVC_NO_ANALYTICS": "1"}
        # As the installed program, without the clone in which the tests run.
        code = "import os, sys; sys.path = [path for path in sys.path if not os.path.exists(path + '/pipeline')]"
        program = [sys.executable, "-P", "-c", f"{code}; from polygrain.cli.main import main; main()", *words]
        done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    return run


@pytest.mark.slow
def test_wheel__embeds_searches_exports_and_makes_a_project_that_runs(installed, tmp_path):
    photos = tmp_path / "photos"
    for i in range(12):
        (photos / str(i % 3)).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (50, 50), (20 * i, 40 * (i % 3), 90)).save(photos / f"{i % 3}/{i}.png")
    model = ("--model", str(ROOT / "encoders/vit48"))
    assert "12 embeddings" in installed(tmp_path, "embed", "photos", "-o", "all.parquet", *model)
    assert "0/0.png" in installed(tmp_path, "search", "photos/0/0.png", "--in", "photos", *model)
    assert installed(tmp_path, "export", model[1], "-o", "exported").startswith("0 ")
    assert "`polygrain init DIR`" in installed(tmp_path, "run")
    assert installed(tmp_path, "init", "mine").startswith("0 wrote mine")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path / "mine", check=True)
    assert "about" in installed(tmp_path / "mine", "new", "shoes", "--images", str(photos))
    assert installed(tmp_path / "mine", "run", "images", "--profile", "shoes").startswith("0 ")
    assert (tmp_path / "mine/profiles/shoes/data/images/photos/table.parquet").exists()
