"""The real dvc.yaml on a few dozen drawn images: what is promised about reruns, kills and bytes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.project import ENVIRONMENT, dvc, edit, new_project, outputs, repro

# The whole graph is run for all of them; the quick suite leaves that to `make repro`.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> Path:
    folder = new_project(tmp_path_factory.mktemp("project"))
    assert repro(folder)[-1] == "report"
    return folder


@pytest.fixture
def project(reproduced, tmp_path) -> Path:
    """A copy of the reproduced project, free to be changed."""
    return Path(shutil.copytree(reproduced, tmp_path / "copy", symlinks=True))


def test_repro__makes_everything_once(reproduced):
    for model in ("encoder", "k3", "k6", "neighbour"):
        metrics = json.loads((reproduced / f"data/evaluation/{model}/metrics.json").read_text())
        assert set(metrics["shapes"]) == {"r_precision", "map_at_r", "recall_at_1", "queries"}
        assert metrics["shapes"]["queries"] == 24
    assert "broken.jpg" in (reproduced / "data/images/shapes/rejected.csv").read_text()
    page = (reproduced / "data/report/index.html").read_text()
    assert "shapes" in page and "neighbour" in page
    assert not list(reproduced.glob("data/**/*.partial"))
    assert repro(reproduced) == []
    assert "up to date" in dvc(reproduced, "status")
    assert len(json.loads(dvc(reproduced, "metrics", "show", "--json"))) > 0


def test_load__a_fusion_is_a_model_people_can_use(reproduced):
    program = """
import sys, torch
from pathlib import Path
from PIL import Image
from polygrain.encoder.model import load
model = load("data/fusion/neighbour")
files = sorted(Path("raw/shapes").rglob("*.png"))[:4]
embeddings = model(torch.stack([model.transform(Image.open(file)) for file in files]))
assert embeddings.shape == (4, 192) and torch.allclose(embeddings.norm(dim=1), torch.ones(4))
assert "pickle" not in {m for m in sys.modules if m == "dill"}
"""
    subprocess.run([sys.executable, "-c", program], cwd=reproduced, check=True, env=ENVIRONMENT | {"PYTHONPATH": "."})


def test_cache__one_more_k_runs_only_what_is_new_and_what_gathers(project):
    def add(values):
        values["granularities"]["k4"] = values["models"]["k4"] = "adaptor/k4"

    edit(project, add)
    ran = set(repro(project))
    fusions = {"fusion@average", "fusion@augmentation", "fusion@neighbour"}
    gathers = {*fusions, "distillation@average", "choice", "evaluation@neighbour", "report"}
    assert ran == {"pseudo_labels@k4", "adaptor@k4", "evaluation@k4"} | gathers


def test_cache__a_fusion_value_runs_that_fusion_and_what_follows(project):
    edit(project, lambda values: values["fusion"]["neighbour"].update(beta=0.01))
    assert set(repro(project)) == {"fusion@neighbour", "evaluation@neighbour", "choice", "report"}
    edit(project, lambda values: values["fusion"]["augmentation"].update(beta=0.01))
    assert repro(project) == ["fusion@augmentation", "choice", "report"]  # its training curve


def test_cache__touched_bytes_rerun_from_the_images(project):
    file = project / "raw/shapes/class1/3.png"
    Image.open(file).rotate(90).save(file)
    ran = repro(project)
    assert ran[0] == "images@shapes" and ran[-1] == "report"
    assert "encoder" not in ran and "adaptor@k3" in ran and "fusion@neighbour" in ran
    os.utime(file)  # the same bytes at another time are no change
    assert repro(project) == []


def test_repro__twice_from_nothing_gives_the_same_bytes(reproduced, tmp_path):
    again = new_project(tmp_path / "again")
    repro(again)
    assert outputs(again) == outputs(reproduced)


def kill_during(project: Path, stage: str, work: str) -> None:
    """Starts the stage and kills dvc and all it started, for good, once an epoch is on disk."""
    process = subprocess.Popen(
        ["dvc", "repro", "--single-item", stage],
        cwd=project,
        env=ENVIRONMENT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if list((project / ".work" / work).glob("*/checkpoint.safetensors")):
            break
        time.sleep(0.01)
    assert process.poll() is None, "the stage ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("stage", ["adaptor@k6", "fusion@neighbour", "distillation@encoder"])
def test_kill__the_next_run_continues_and_ends_with_the_same_bytes(project, stage):
    expected = outputs(project)
    name, item = stage.split("@")
    shutil.rmtree(project / "data" / name / item)
    shutil.rmtree(project / ".dvc" / "cache")  # else the run cache would simply restore it
    kill_during(project, stage, name)
    assert not (project / "data" / name / item).exists()
    assert list((project / ".work" / name).glob("*/checkpoint.safetensors"))
    said = dvc(project, "repro", "--single-item", stage)
    assert "continues after epoch" in said
    assert outputs(project) == expected
    assert not list((project / ".work" / name).glob("*/checkpoint.safetensors"))


def test_repro__an_incomplete_output_is_named_by_the_stage_that_reads_it(project):
    shard = next((project / "data/images/shapes/pixels.zarr/c").rglob("0"))
    while shard.is_dir():
        shard = shard / "0"
    content = shard.read_bytes()
    shard.unlink()  # the cache may hold the same inode
    shard.write_bytes(content[:-100])
    command = ["stages/run", "features", "data/images/shapes", "data/encoder", "out", "--task", "shapes"]
    done = subprocess.run(command, cwd=project, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "pixels.zarr: shard" in done.stderr and "dvc" in done.stderr
