"""The branch of visual analogies by the real dvc.yaml: what reruns, what a kill leaves, same bytes twice."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.pairs import paint
from tests.helpers.project import ENVIRONMENT, dvc, edit, new_project, outputs, repro

STUDY = {"source": "folder", "path": "raw/pairs", "listed": None, "extractor": "encoder", "weights": "data/encoder"}
REPORT = "tll_report@own"
CHAIN = ["tll_pairs@own", "tll_features@own", "tll_pca@own", "tll_adaptation@own", REPORT]

pytestmark = pytest.mark.slow


def shrink(values: dict) -> None:
    values["tll"] = {"own": dict(STUDY)}
    values["tll_pca"] |= {"components": 8, "runs": 3}
    values["tll_adaptation"] |= {"hidden": 16, "steps": 10}


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> Path:
    folder = new_project(tmp_path_factory.mktemp("project"))
    paint(folder / "raw/pairs")
    edit(folder, shrink)
    ran = repro(folder, REPORT)
    assert sorted(ran) == sorted(["encoder", *CHAIN]) and ran[-4:] == CHAIN[1:]
    return folder


@pytest.fixture
def project(reproduced, tmp_path) -> Path:
    return Path(shutil.copytree(reproduced, tmp_path / "copy", symlinks=True))


def test_repro__makes_everything_once(reproduced):
    assert repro(reproduced, REPORT) == []
    metrics = json.loads((reproduced / "data/tll_report/own/metrics.json").read_text())
    assert set(metrics) == {"concatenated", "pca", "sigma_1", "sigma_15"}
    assert not list(reproduced.glob("data/**/*.partial"))


def test_load__the_model_embeds_images(reproduced):
    program = """
import torch
from pathlib import Path
from PIL import Image
from polygrain.tll.adaptation.model import load
model = load("data/tll_adaptation/own/model")
files = sorted(Path("raw/pairs/left").glob("*.png"))[:4]
embeddings = model(torch.stack([model.transform(Image.open(file)) for file in files]))
assert embeddings.shape == (4, 16) and torch.allclose(embeddings.norm(dim=1), torch.ones(4))
"""
    subprocess.run([sys.executable, "-c", program], cwd=reproduced, check=True, env=ENVIRONMENT | {"PYTHONPATH": "."})


def test_cache__only_what_depends_on_a_change_runs(project):
    expected = outputs(project)
    edit(project, lambda values: values["tll_adaptation"].update(steps=12))
    assert repro(project, REPORT) == CHAIN[3:]
    edit(project, lambda values: values["tll"].update(again=dict(STUDY)))
    ran = repro(project, REPORT, "tll_report@again")
    # The other study's page runs too: its table over extractors has one more line.
    assert set(ran) == {stage.replace("own", "again") for stage in CHAIN} | {REPORT}
    edit(project, lambda values: values["tll"].pop("again"))
    edit(project, lambda values: values["tll_adaptation"].update(steps=10))
    shutil.rmtree(project / ".dvc/cache/runs")  # else the first results would be restored, not made again
    repro(project, REPORT)
    assert {path: md5 for path, md5 in outputs(project).items() if "again" not in path} == expected


def test_repro__a_left_image_without_its_right_one_is_named(project):
    (project / "raw/pairs/right/7.webp").unlink()
    said = dvc(project, "repro", REPORT, check=False)
    assert "1 left images of raw/pairs have no right one of the same name: 7" in said and "Traceback" not in said
