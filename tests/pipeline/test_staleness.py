"""What a change makes stale, by the dependencies and params that DVC has read from the project's own dvc.yaml.

What follows from a stale stage is not listed: it runs only where the stage's output has changed.
"""

import contextlib
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from dvc.dependency.param import ParamsDependency
from dvc.repo import Repo
from ruamel.yaml import YAML

from polygrain.config.lists import Lists
from tests.helpers.project import copy_project

TRAINED = "resolution adaptor choice"  # by the criterion
DRAWN = "fusion seeds mpcl_encoder mpcl_probe gsp_collage gsp_folds gsp_ensemble gsp_study tll_pca tll_adaptation"
OF_TASKS = "resolution seeds pseudo_labels scatter adaptor knn_graph refreshed_graph fusion choice "
OF_TASKS += "evaluation report mpcl_encoder mpcl_probe mpcl_report"
K64 = {"granularities.k64": "pseudo_labels/k64", "adaptors.k64": "adaptor/k64", "models.k64": "adaptor/k64"}
CHANGES = [
    ("requirements.lock", {}, ""),
    ("README.md", {}, ""),
    ("pipeline/flow.py", {}, ""),
    ("polygrain/runner/command.py", {}, ""),
    ("stages/report.py", {}, "report"),
    ("polygrain/losses/norm_softmax.py", {}, "adaptor fusion"),
    ("polygrain/findings/sections/curves.py", {}, "report"),
    ("polygrain/clustering/lloyd.py", {}, "seeds pseudo_labels"),
    ("encoders/vit48/config.json", {}, "encoder"),
    (
        "versions.yaml",
        {"faiss-cpu": "2"},
        # Items whose path is the file of versions are among them.
        "images tll_pairs gsp_folds seeds knn_graph refreshed_graph fusion gallery evaluation " + TRAINED,
    ),
    ("params.yaml", {"features.dtype": "float32"}, "features"),
    ("params.yaml", {"images.stored": "jpeg-90"}, "images"),
    ("params.yaml", {"adaptor.epochs": 9}, "adaptor"),
    ("params.yaml", {"adaptor.watched": 9}, "adaptor"),
    ("params.yaml", {"fusion.neighbour.epochs": 9}, "fusion@neighbour"),
    ("params.yaml", {"choice.criterion.images": 9}, TRAINED),
    ("params.yaml", {"choice.errors": 1}, "choice"),
    ("params.yaml", {"choice.layer": "none"}, "choice"),
    ("params.yaml", {"choice.blocks": 1}, "resolution features seeds scatter choice"),
    ("params.yaml", {"choice.reference.dim": 9}, TRAINED),
    ("params.yaml", {"resolution.cost": 4}, "resolution"),
    ("params.yaml", {"evaluation.whitened_dim": 9}, "evaluation"),
    ("params.yaml", {"gallery.smoothing.depth": 9}, "choice evaluation gallery"),
    ("params.yaml", {"report.thumbnail": 9}, "report"),
    ("params.yaml", {"seed": 1}, f"resolution adaptor {DRAWN}"),
    (
        "params.yaml",
        K64,
        "pseudo_labels@k64 scatter@k64 adaptor@k64 evaluation@k64 refreshed_graph fusion choice report",
    ),
    (
        "params.yaml",
        {"tasks.shoes": {"source": "folder"}, "paths.shoes": "x"},
        "images@shoes features@shoes gallery@shoes " + OF_TASKS,
    ),
    ("params.yaml", {"paths.digits": "x"}, "images@digits"),
    ("params.yaml", {"mpcl.heads4.heads": 8}, "mpcl_encoder@heads4 mpcl_report report"),
    (
        "params.yaml",
        {"gsp_runs.pnca-gap.zero_shot": 0.5},
        "gsp_folds@pnca-gap-0-0 gsp_folds@pnca-gap-1-0 gsp_ensemble gsp_report",
    ),
    # Another repeat trains alone.
    (
        "params.yaml",
        {"gsp_trainings.pnca-gap-0-1": {"run": "pnca-gap", "images": "gsp_collage/collage", "fold": 0, "repeat": 1}},
        "gsp_folds@pnca-gap-0-1 gsp_ensemble",
    ),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("staleness")
    copy_project(folder)
    return folder


def read(folder: Path) -> dict[str, tuple[str, list[str], dict[str, list[str]]]]:
    """Each stage's command, the paths it depends on, and its keys of each file of values."""
    with contextlib.chdir(folder), Repo(".") as repo:
        stages = {}
        for stage in repo.stage.collect("dvc.yaml"):
            params = [dep for dep in stage.deps if isinstance(dep, ParamsDependency)]
            paths = sorted(str(dep.def_path).removeprefix("./") for dep in stage.deps if dep not in params)
            stages[stage.addressing] = stage.cmd, paths, {Path(dep.def_path).name: dep.params for dep in params}
        return stages


def value(values: dict, key: str) -> object:
    return reduce(dict.__getitem__, key.split("."), values)


def stale(project: Path, before: dict, file: str, changes: dict) -> Iterator[str]:
    """The stages that are new, have another command or other dependencies, or depend on the file or on what changes."""
    yaml, after, old, new = YAML(typ="safe"), before, {}, {}
    if changes:
        text = (project / file).read_text()
        old, new = yaml.load(text), yaml.load(text)
        for key, changed in changes.items():
            *sections, name = key.split(".")
            reduce(dict.__getitem__, sections, new)[name] = changed
    if {key.split(".")[0] for key in changes} & set(Lists.model_fields):
        with (project / file).open("w") as stream:
            yaml.dump(new, stream)
        after = read(project)
        (project / file).write_text(text)
    for name, (command, paths, params) in after.items():
        is_other = name not in before or before[name][:2] != (command, paths)
        is_path = file != "params.yaml" and any(Path(file).is_relative_to(path) for path in paths)
        if is_other or is_path or any(value(old, key) != value(new, key) for key in params.get(file, [])):
            yield name


@pytest.fixture(scope="module")
def before(project):
    return read(project)


@pytest.mark.parametrize(("file", "changes", "expected"), CHANGES)
def test_changes__make_stale_what_they_concern(project, before, file, changes, expected):
    names = set(stale(project, before, file, changes))
    all_names = names | before.keys()
    assert names == {name for name in all_names for one in expected.split() if one in (name, name.split("@")[0])}
