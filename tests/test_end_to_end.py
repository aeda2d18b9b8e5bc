"""The real dvc.yaml on a few dozen drawn images: what is promised about reruns, kills, bytes and names."""

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

from polygrain.store.tables import read_csv
from tests.helpers.pairs import paint
from tests.helpers.project import ENVIRONMENT, dvc, edit, new_project, outputs, repro

# The graph is run twice; the quick suite leaves that to `polygrain run`.
pytestmark = pytest.mark.slow

NAMES = ["a\rb", "a\nb", "\x1b[2J", "\u202egnp", "\u2028", "<script>", '"', "'", ",", "\\", "$(x)", "é", "=1+1", "-rf"]
STUDY = {"source": "folder", "path": "raw/pairs", "listed": None, "extractor": "encoder", "weights": "data/encoder"}
TLL = ["tll_pairs@own", "tll_features@own", "tll_pca@own", "tll_adaptation@own", "tll_report@own"]


def shrink(values: dict) -> None:
    """One item of most lists, and a study of pairs."""
    values["fusions"] = {"average": "adaptor", "neighbour": "refreshed_graph"}
    values["models"] = {"encoder": "encoder", "k3": "adaptor/k3", "recommended": "choice"}
    values["tll"] = {"own": STUDY}
    values["tll_pca"] |= {"components": 8, "runs": 3}
    values["tll_adaptation"] |= {"hidden": 16, "steps": 10}


def small_project(folder: Path) -> Path:
    """A project whose images and classes have names of every kind."""
    new_project(folder)
    edit(folder, shrink)
    paint(folder / "raw/pairs")
    for i, name in enumerate(NAMES):
        Image.linear_gradient("L").rotate(7 * i).resize((60, 70)).save(folder / f"raw/shapes/class0/{name}.png")
        (folder / f"raw/shapes/class1/{name}.txt").write_text("no image")
    (folder / "raw/shapes/class2").rename(folder / "raw/shapes/class2\r\u202e")
    return folder


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> Path:
    folder = small_project(tmp_path_factory.mktemp("project"))
    ran = repro(folder)
    assert {*TLL, "choice", "evaluation@recommended", "report"} <= set(ran)
    return folder


def test_repro__makes_everything_once(reproduced):
    assert "up to date" in dvc(reproduced, "status")
    for model in ("encoder", "k3", "recommended"):
        metrics = json.loads((reproduced / f"data/evaluation/{model}/metrics.json").read_text())
        assert set(metrics["shapes"]) == {"r_precision", "map_at_r", "recall_at_1", "queries"}
    metrics = json.loads((reproduced / "data/tll_report/own/metrics.json").read_text())
    assert set(metrics) == {"concatenated", "pca", "sigma_1", "sigma_15"}
    assert not list(reproduced.glob("data/**/*.partial"))
    file = reproduced / "raw/shapes/class1/3.png"
    os.utime(file)  # the same bytes at another time are no change
    assert repro(reproduced) == []
    assert len(json.loads(dvc(reproduced, "metrics", "show", "--json"))) > 0


def test_repro__odd_names_reach_the_report(reproduced):
    rejected = {row["path"] for row in read_csv(reproduced / "data/images/shapes/rejected.csv")}
    assert {"class0/broken.jpg", *(f"class1/{name}.txt" for name in NAMES)} <= rejected
    text = (reproduced / "data/report/index.html").read_text(encoding="utf-8")
    assert "shapes" in text and not set(text) & {"\r", "\x1b", "\u202e", "\u2028"}


def test_load__models_people_can_use(reproduced):
    program = """
import torch
from pathlib import Path
from PIL import Image
from polygrain.encoder.model import load
from polygrain.tll.adaptation.model import load as load_pairs
images = [Image.open(file) for file in sorted(Path("raw/pairs/left").glob("*.png"))[:4]]
for model, width in ((load("data/fusion/neighbour"), 192), (load_pairs("data/tll_adaptation/own/model"), 16)):
    embeddings = model(torch.stack([model.transform(image) for image in images]))
    assert embeddings.shape == (4, width) and torch.allclose(embeddings.norm(dim=1), torch.ones(4))
"""
    subprocess.run([sys.executable, "-c", program], cwd=reproduced, check=True, env=ENVIRONMENT | {"PYTHONPATH": "."})


def kill_during(project: Path, stage: str) -> None:
    """Starts a stage with all that it needs, and kills dvc and all it started once an epoch is on disk."""
    process = subprocess.Popen(
        ["dvc", "repro", stage],
        cwd=project,
        env=ENVIRONMENT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    work = project / ".work" / stage.split("@")[0]
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        if list(work.rglob("checkpoint.safetensors")):
            break
        time.sleep(0.01)
    assert process.poll() is None, "the stage ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (project / "data" / stage.replace("@", "/")).exists()


def test_kill__a_run_from_nothing_continues_and_ends_with_the_same_bytes(reproduced, tmp_path):
    """Also the same bytes twice: the other project ran undisturbed."""
    project = small_project(tmp_path / "again")
    for stage in ("adaptor@k6", "fusion@neighbour"):
        kill_during(project, stage)
        assert "continues after epoch" in dvc(project, "repro", "--single-item", stage)
        assert not list((project / ".work" / stage.split("@")[0]).rglob("checkpoint.safetensors"))
    repro(project)
    assert outputs(project) == outputs(reproduced)


def test_cache__only_what_depends_on_a_change_runs(reproduced, tmp_path):
    project = Path(shutil.copytree(reproduced, tmp_path / "copy", symlinks=True))

    def change(values):
        values["granularities"]["k4"], values["adaptors"]["k4"] = "pseudo_labels/k4", "adaptor/k4"
        values["tll_adaptation"]["steps"] = 12

    edit(project, change)
    gathers = {"refreshed_graph", "fusion@average", "fusion@neighbour", "choice", "evaluation@recommended"}
    gathers |= {"gallery@shapes", "report"}
    assert set(repro(project)) == {"pseudo_labels@k4", "scatter@k4", "adaptor@k4", *gathers, *TLL[3:]}
    (project / "raw/pairs/right/7.webp").unlink()
    message = dvc(project, "repro", TLL[-1], check=False)
    assert "same name: 7" in message and "Traceback" not in message
