"""The commands of docs/howto/papers.md, run on small copies of the data."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
from ruamel.yaml import YAML
from safetensors.torch import save_file

from tests.helpers import layouts
from tests.helpers.project import ENVIRONMENT, copy_project
from tests.test_profiles import composed


def small_cifar(made: dict, root: Path) -> None:
    for version in ("10", "100"):
        if not (raw := root / f"data/raw/cifar{version}").exists():
            layouts.cifar(raw, {"10": 2, "100": 4}[version], version)
    made["images"]["published_counts"] = False
    made["gsp_folds"]["stopping"] |= {"every": 2, "patience": 1, "longest": 2}
    made["gsp_trainings"] = {name: item for name, item in made["gsp_trainings"].items() if not item["repeat"]}
    made.get("gsp_classifier", {}).update({"epochs": 1, "warmup": 0})
    made["gsp_ensemble"]["splits"] = 5


def small_cub(made: dict, root: Path) -> None:
    layouts.WRITERS["cub"](root / "data/raw/cub", 4)
    made["images"] |= {"side": 48, "published_counts": False}
    made["encoder"] |= {"source": "folder", "path": "../../encoders/vit48", "architecture": None, "side": None}
    made["encoder"]["resize"] = 48


def small_tll(made: dict, root: Path) -> None:
    """Twelve pairs and the network with weights of its own: nothing may be fetched."""
    raw, names = root / "data/raw/tll", [f"{i:05d}.jpg" for i in range(1, 13)]
    for side in ("left", "right"):
        for i, name in enumerate(names):
            layouts.paint(raw / side / name, i, i, side)
    (raw / "TLL_obj.csv").write_text("".join([",TLL_obj\n", *(f"{i},{name}\n" for i, name in enumerate(names))]))
    save_file(timm.create_model("vit_small_patch16_224.dino").state_dict(), root / "dino.safetensors")
    made["tll"]["deits16"]["weights"] = "../../dino.safetensors"
    made["tll_pca"] |= {"components": 4, "runs": 2}
    made["tll_adaptation"] |= {"hidden": 8, "steps": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "stage", "shrink", "file", "shown"),
    [
        ("gsp-cifar-fig3b", "gsp_report", small_cifar, "gsp_report/cifar_collage/index.html", "pnca-gsp"),
        ("gsp-cifar-distilled", "gsp_report", small_cifar, "gsp_report/cifar_collage/index.html", "pnca-gap"),
        ("gsp-cifar10", "gsp_report", small_cifar, "gsp_report/cifar10/index.html", "pnca-gsp"),
        ("tll-obj-dino", "tll_report", small_tll, "tll_report/deits16/index.html", "Adapted, σ = 15"),
        ("mrt-cub", "evaluation@encoder", small_cub, "evaluation/encoder/metrics.json", "map_at_r"),
    ],
)
def test_profile__runs_on_a_small_copy(
    profile: str, stage: str, shrink: Callable, file: str, shown: str, tmp_path: Path
) -> None:
    copy_project(tmp_path)
    # The copies have other checksums than the archives.
    with (tmp_path / "polygrain/sources/datasets/sets.py").open("a") as code:
        code.write("\nimport torchvision.datasets.cifar as t\n\nt.check_integrity = lambda *_: True\n")
    made = json.loads(json.dumps(composed(profile)))
    shrink(made, tmp_path)
    (tmp_path / "profiles" / profile).mkdir(parents=True)
    with (tmp_path / "profiles" / profile / "values.yaml").open("w") as stream:
        YAML(typ="safe").dump(made, stream)
    program = [sys.executable, "-m", "polygrain", "run", stage, "--profile", profile]
    done = subprocess.run(program, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert shown in (tmp_path / "profiles" / profile / "data" / file).read_text()
