"""Copies of the project on a few dozen drawn images, for tests that run the real dvc.yaml."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from ruamel.yaml import YAML

from pipeline import stage_server

ROOT = Path(__file__).parents[2]
SOURCES = (
    "examples",
    "stages",
    "pipeline",
    "polygrain",
    "encoders",
    "dvc.yaml",
    "params.yaml",
    "versions.yaml",
    ".dvc/config",
    ".dvc/.gitignore",
    ".dvc/plots",
    ".dvcignore",
    ".gitignore",
)
ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "DVC_NO_ANALYTICS": "1",
}


def draw_images(root: Path, seed: int = 0) -> None:
    """Six classes of eight pictures: shapes of a class's own colour at random places."""
    rng = np.random.default_rng(seed)
    for label in range(6):
        (root / f"class{label}").mkdir(parents=True)
        for i in range(8):
            image = Image.fromarray(rng.integers(0, 120, (60, 70, 3), dtype=np.uint8))
            x, y = rng.integers(0, 30, 2).tolist()
            draw = ImageDraw.Draw(image)
            colour = tuple(255 if bit == "1" else 40 for bit in f"{label + 1:03b}")
            (draw.ellipse if label % 2 else draw.rectangle)([x, y, x + 28, y + 28], fill=colour)
            image.save(root / f"class{label}" / f"{i}.png")
    (root / "class0" / "broken.jpg").write_bytes(b"not an image")


def shrink(values: dict) -> None:
    """The default parameters, made small enough for a test."""
    values |= {"tasks": {"shapes": {"source": "folder"}}, "paths": {"shapes": "raw/shapes"}}
    values["granularities"] = {"k3": "pseudo_labels/k3", "k6": "pseudo_labels/k6"}
    values["adaptors"] = {"k3": "adaptor/k3", "k6": "adaptor/k6"}
    values["models"] = {"encoder": "encoder", "k3": "adaptor/k3", "k6": "adaptor/k6", "neighbour": "fusion/neighbour"}
    values |= {name: {} for name in ("gsp_collages", "gsp_runs", "gsp_trainings", "gsp", "gsp_studies")}
    values["adaptor"] |= {"epochs": 3, "batch": 8}
    for how in ("augmentation", "neighbour"):
        values["fusion"][how] |= {"epochs": 3, "batch": 8, "projector": [32, 32]}
    values["choice"]["criterion"]["fewest"] = 20  # of the 24 images that train
    values["evaluation"]["whitened_dim"] = 8
    values["mpcl"] = {}
    values["tll"] = {}


def edit(folder: Path, change) -> None:
    file = folder / "params.yaml"
    yaml = YAML(typ="safe")
    values = yaml.load(file.read_text())
    change(values)
    with file.open("w") as stream:
        yaml.dump(values, stream)


def copy_project(folder: Path) -> None:
    """What `dvc repro` needs, in a git repository of its own."""
    for name in SOURCES:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)


def new_project(folder: Path) -> Path:
    """A copy whose parameters and images are small."""
    copy_project(folder)
    edit(folder, shrink)
    draw_images(folder / "raw" / "shapes")
    return folder


def dvc(folder: Path, *arguments: str, check: bool = True, **environment: str) -> str:
    environment = ENVIRONMENT | environment
    done = subprocess.run(["dvc", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def repro(folder: Path, *arguments: str) -> list[str]:
    """Reproduces, as `polygrain run` with stages that are loaded once, and returns the stages that ran."""
    with stage_server.serving(folder) as environment:
        said = dvc(folder, "repro", *arguments, **environment)
    return [line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")]


def outputs(folder: Path) -> dict[str, str]:
    """Each output of dvc.lock with its md5."""
    lock = YAML(typ="safe").load((folder / "dvc.lock").read_text())
    return {out["path"]: out["md5"] for stage in lock["stages"].values() for out in stage["outs"]}
