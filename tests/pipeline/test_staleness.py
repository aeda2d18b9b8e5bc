"""What a change makes stale, by the dependencies and params that DVC has read from the project's own dvc.yaml.

What follows from a stale stage is not listed: it runs only where the stage's output has changed.
"""

import contextlib
from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path

import pytest
from dvc.dependency.param import ParamsDependency
from dvc.repo import Repo
from ruamel.yaml import YAML

from polygrain.config.lists import Lists
from polygrain.store import imports
from tests.helpers.project import copy_project

# The items of these lists, and values of theirs, with all that they make stale.
ITEMS = [
    ({"paths.digits": "x"}, "images@digits"),
    ({"mpcl.heads4.heads": 8}, "mpcl_encoder@heads4 mpcl_report report"),
    ({"gsp_runs.pnca-gap.zero_shot": 0.5}, "gsp_folds@pnca-gap-0-0 gsp_folds@pnca-gap-1-0 gsp_ensemble gsp_report"),
    # Another repeat trains alone.
    (
        {"gsp_trainings.pnca-gap-0-1": {"run": "pnca-gap", "images": "gsp_collage/collage", "fold": 0, "repeat": 1}},
        "gsp_folds@pnca-gap-0-1 gsp_ensemble",
    ),
]
ADDED = [
    {"tasks.shoes": {"source": "folder"}, "paths.shoes": "x"},
    {"granularities.k64": "pseudo_labels/k64", "adaptors.k64": "adaptor/k64", "models.k64": "adaptor/k64"},
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
    places = {file, *map(str, Path(file).parents)}
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
        is_path = file != "params.yaml" and not places.isdisjoint(paths)
        if is_other or is_path or any(value(old, key) != value(new, key) for key in params.get(file, [])):
            yield name


@pytest.fixture(scope="module")
def before(project):
    return read(project)


def stages_of(names: Iterable[str]) -> set[str]:
    return {name.split("@")[0] for name in names}


@pytest.mark.parametrize("file", ["requirements.lock", "README.md", "pipeline/flow.py", "polygrain/runner/command.py"])
def test_files__that_decide_no_result_make_nothing_stale(project, before, file):
    assert not [*stale(project, before, file, {})]


def test_sources__make_the_stages_stale_that_import_them(project, before):
    """And stages that import others of the same room; a stage's own file concerns it alone."""
    sources = {stage: imports.sources(stage).keys() for stage in stages_of(before)}
    for file in sorted(set().union(*sources.values())):
        names = stages_of(stale(project, before, file, {}))
        assert names >= {stage for stage in sources if file in sources[stage]}, file
        assert not file.startswith("stages/") or names == {Path(file).stem}, file


def test_values__make_stale_their_stage_and_those_that_name_them(project, before):
    values = YAML(typ="safe").load((project / "params.yaml").read_text())
    for section in values.keys() & stages_of(before):
        readers = {name: params.get("params.yaml", []) for name, (_, _, params) in before.items()}
        is_whole = any(section in keys for keys in readers.values())
        for key in (f"{section}.{name}" for name in values[section]):
            names = stages_of(
                name for name, keys in readers.items() if any(f"{key}.".startswith(f"{one}.") for one in keys)
            )
            assert section in names or not is_whole, key
            for stage in names - {section}:
                assert f'"{key}' in (project / f"stages/{stage}.py").read_text(), f"{key}: {stage}"


@pytest.mark.parametrize(("changes", "expected"), ITEMS)
def test_items__make_stale_what_they_concern(project, before, changes, expected):
    names = set(stale(project, before, "params.yaml", changes))
    all_names = names | before.keys()
    assert names == {name for name in all_names for one in expected.split() if one in (name, name.split("@")[0])}


@pytest.mark.parametrize("changes", ADDED)
def test_items__a_new_one_runs_beside_those_before(project, before, changes):
    names = set(stale(project, before, "params.yaml", changes))
    new = stages_of(names - before.keys())
    assert new and not {name for name in names & before.keys() if name.split("@")[0] in new}
    assert "seeds" not in names or "tasks.shoes" in changes  # another k runs no seeding again
