"""The shape of the house: one stage per file, imports one way, and `deps` that say what a stage really reads."""

import ast
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.core.runner import schema

ROOT = Path(__file__).parent.parent
STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")
GRAPH = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
PARAMS = YAML(typ="safe").load((ROOT / "params.yaml").read_text())
# How a stage is run, not what it computes; what a main is handed is in `params` already.
NO_DEPENDENCY = ROOT / "stages/core/runner"


def body(stage: str) -> dict:
    return GRAPH[stage].get("do", GRAPH[stage])


def imports(file: Path) -> set[str]:
    """Dotted names of the modules a file imports; `from a import b` counts as a.b where that is a module."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own_files(file: Path) -> set[Path]:
    """The project's own modules that a file imports directly."""
    found = set()
    for name in imports(file):
        path = ROOT / Path(*name.split(".")).with_suffix(".py")
        if name.startswith(("stages", "pipeline")) and path.exists():
            found.add(path)
    return found


def closure(file: Path) -> set[Path]:
    seen, todo = set(), [file]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo += own_files(current)
    return seen


def templates(files: set[Path]) -> set[Path]:
    """Files beside a module that it reads by name."""
    return {
        path
        for file in files
        for path in [*(ROOT / "stages/core").rglob("*.j2"), *(ROOT / "stages/core").rglob("*.csv")]
        if any(isinstance(n, ast.Constant) and n.value == path.name for n in ast.walk(ast.parse(file.read_text())))
    }


def dependencies(stage: str) -> set[str]:
    """What a stage's result depends on among the sources: files, and a package's folder where it uses all of them."""
    files = closure(ROOT / f"stages/{stage}.py")
    used = {path for path in files | templates(files) if not path.is_relative_to(NO_DEPENDENCY)}
    for package in {path.parent for path in used} - {ROOT / "stages", ROOT / "stages/core"}:
        modules = {path for path in package.iterdir() if path.is_file() and path.name != "__init__.py"}
        if modules <= used:
            used = used - modules | {package}
    return {str(path.relative_to(ROOT)) for path in used}


def test_stages__files_sections_and_graph_name_the_same():
    assert sorted(GRAPH) == STAGES
    assert sorted(set(PARAMS) - set(schema.Lists.model_fields)) == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_stages__command_output_and_params_bear_the_stage_name(stage):
    words = body(stage)["cmd"].split()
    assert words[:2] == ["${root}/stages/run", stage]
    (out,) = body(stage)["outs"]
    assert out.split("/")[:2] == ["data", stage] and out in words
    assert any(str(param).split(".")[0] == stage for param in body(stage)["params"])
    assert body(stage)["desc"]


@pytest.mark.parametrize("stage", STAGES)
def test_stages__deps_are_the_import_closure(stage):
    declared = {dep.removeprefix("${root}/") for dep in body(stage)["deps"] if dep.startswith("${root}/")}
    assert declared == dependencies(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_stages__what_the_command_reads_is_a_dependency(stage):
    """Every data folder on the command line, the output aside, is in `deps` (one that stands for an item's may be)."""
    declared = {dep for dep in body(stage)["deps"] if not dep.startswith("${root}/")}
    out = body(stage)["outs"][0]
    read = {word for word in body(stage)["cmd"].split() if word.startswith("data/") and word != out}
    # These read the graph only for some items, and then ${item} is that folder.
    assert read - declared <= ({"data/knn_graph"} if stage in ("fusion", "baseline") else set())


@pytest.mark.parametrize("stage", STAGES)
def test_stages__sources_that_read_a_list_depend_on_it(stage):
    """A stage that gathers items must rerun when the list changes: DVC sees a folder, not which names belong in it."""
    source = (ROOT / f"stages/{stage}.py").read_text()
    declared = set(map(str, body(stage)["params"]))
    for name in ("tasks", "fusions", "supervised_models", "models", "mpcl", "tll", "mrt"):
        # One that reads only its own item depends on that item.
        own = source.replace("lists.tasks[task]", "").replace("lists.mpcl[run]", "").replace("lists.tll[study]", "")
        if f"lists.{name}" in own:
            assert name in declared
    if "seed: int" in source.split("def main")[1]:
        assert "seed" in declared
    borrowed = re.findall(r'\w+="([\w.]+)"', source.rpartition("command.run(main")[2])
    assert declared >= set(borrowed)


def test_imports__point_one_way():
    stage_modules = {f"stages.{stage}" for stage in STAGES}
    for path in (ROOT / "stages").rglob("*.py"):
        names = imports(path)
        assert not names & stage_modules, f"{path} imports a stage"
        assert not {n for n in names if n.split(".")[0] in {"pipeline", "prefect", "dvc", "tests", "benchmarks"}}, path
    for path in (ROOT / "pipeline").rglob("*.py"):
        assert not {n for n in imports(path) if n.split(".")[0] == "stages"}, f"{path} imports stages"


def test_outputs__are_cached_and_never_persist():
    """`cache: false` cannot be restored by a colleague; `persist` leaves the run cache and resumes from stale files."""
    text = (ROOT / "dvc.yaml").read_text()
    assert "persist" not in text and "cache: false" not in text


def test_tests__mirror_the_sources():
    missing = [stage for stage in STAGES if not (ROOT / f"tests/test_{stage}.py").exists()]
    core = ROOT / "stages/core"
    for path in core.rglob("*.py"):
        relative = path.relative_to(core)
        if path.stem != "__init__" and not (ROOT / "tests/core" / relative.with_name(f"test_{path.name}")).exists():
            missing.append(str(relative))
    assert not missing


def test_sources__no_pickle():
    for path in [*(ROOT / "stages").rglob("*.py"), *(ROOT / "pipeline").rglob("*.py")]:
        assert not {n for n in imports(path) if n.split(".")[0] in {"pickle", "joblib", "dill"}}, path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "np.load"}:
                arguments = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                assert arguments.get("weights_only") is True or arguments.get("allow_pickle") is False, path
