"""What `pip install .` installs: one name, from which a model is used in any folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.small import write_encoder

ROOT = Path(__file__).parents[2]
CODE = """
import sys
sys.path.insert(0, sys.argv[1])
import polygrain
from polygrain.encoder import load
assert polygrain.__file__.startswith(sys.argv[1]), polygrain.__file__
load("model")
from polygrain.cli.main import main
assert not {"stages", "pipeline"} & set(sys.modules)
sys.argv[1:] = sys.argv[2:] or ["model", "model"]
sys.modules["pipeline"] = None  # the tests' environment can import it
main()
"""


@pytest.mark.slow
def test_wheel__claims_one_name_and_works_in_any_folder(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
        assert {name for name in names if not name.endswith(".dist-info")} == {"polygrain"}
        archive.extractall(tmp_path / "site")
    write_encoder(tmp_path / "model")
    command = [sys.executable, "-c", CODE, str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "digest" in done.stdout
    command[-1:] = [str(tmp_path / "site"), "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "runs in a clone of polygrain" in done.stderr
