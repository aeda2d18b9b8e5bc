"""The shape of the house: one stage per file, imports one way, and `deps` that say what a stage really reads."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import jinja2
import jinja2.meta
import pytest
from ruamel.yaml import YAML

from polygrain.config.lists import Lists

ROOT = Path(__file__).parent.parent
STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")
GRAPH = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
PARAMS = YAML(typ="safe").load((ROOT / "params.yaml").read_text())
LIBRARY = ROOT / "polygrain"
# How a stage is run, not what it computes; what a main is handed is in `params` already.
RUNNER = (LIBRARY / "runner", LIBRARY / "config")
PAPERS = ("grappa", "gsp", "mpcl", "tll")
# The shared rooms, each with those that it may import. A paper may import all of them.
SHARED = {
    "compute": (),
    "store": ("compute",),
    "sources": ("store",),
    "config": ("sources", "store"),
    "runner": ("compute", "config", "store"),
    "clustering": ("compute",),
    "retrieval": ("compute",),
    "losses": ("compute", "config"),
    "encoder": ("compute", "config", "runner", "store"),
    "selection": ("compute", "config", "encoder", "retrieval", "runner", "store"),
    "training": ("compute", "config", "runner", "store"),
    "report": (),
}
# What is for use: it may import every room, and no room imports it.
USE = ("app", "cli")


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
        if name.startswith(("stages", "pipeline", "polygrain")) and path.exists():
            found.add(path)
    return found


def closure(file: Path) -> set[Path]:
    """What a result can depend on: all modules imported, directly or not, but the runner and what only that imports."""
    seen, todo = set(), [file]
    while todo:
        current = todo.pop()
        if current not in seen and not any(current.is_relative_to(folder) for folder in RUNNER):
            seen.add(current)
            todo += own_files(current)
    return seen


def read_files(files: set[Path]) -> set[Path]:
    """Tables and templates that a module reads: named by their path below polygrain, or by name beside the module."""
    data = [*LIBRARY.rglob("*.j2"), *LIBRARY.rglob("*.csv")]
    found = set()
    for file in files:
        words = {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
        for path in data:
            below = path.relative_to(LIBRARY).as_posix()
            if {below, below.removesuffix(".html.j2"), below.removesuffix(".md.j2")} & words or (
                path.name in words and path.parent == file.parent
            ):
                found.add(path)
    return found | templates_of(found)


def templates_of(files: set[Path]) -> set[Path]:
    """What templates extend, include or import, directly or not; each names it by its path below polygrain."""
    seen, todo = set(), [file for file in files if file.suffix == ".j2"]
    while todo:
        tree = jinja2.Environment().parse(todo.pop().read_text())
        named = {LIBRARY / name for name in jinja2.meta.find_referenced_templates(tree)} - seen
        seen |= named
        todo += named
    return seen


def dependency(file: Path) -> Path:
    """What stands for a source in `deps`: its room or sub-room; a loss, and what a paper keeps at its door, itself."""
    room = file.parent
    is_alone = file.is_relative_to(LIBRARY) and room.parent == LIBRARY and room.name in ("losses", *PAPERS)
    return file if is_alone or not file.is_relative_to(LIBRARY) else room


def dependencies(stage: str) -> set[str]:
    """What a stage's result depends on among the sources."""
    files = closure(ROOT / f"stages/{stage}.py")
    found = {dependency(file) for file in files | read_files(files)}
    return {path.relative_to(ROOT).as_posix() for path in found if not found & set(path.parents)}


def room_of(file: Path) -> str:
    return file.relative_to(LIBRARY).parts[0]


def test_rooms__hold_all_modules_and_say_what_belongs_there():
    assert {path.name for path in LIBRARY.iterdir() if path.name != "__pycache__"} == {
        *SHARED,
        *PAPERS,
        *USE,
        "__init__.py",
        "__main__.py",
    }
    for folder in [path for path in LIBRARY.rglob("*") if path.is_dir() and path.name != "__pycache__"]:
        said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
        assert said and len(said.splitlines()) <= 4, folder


def test_rooms__import_downwards_and_no_other_paper():
    wrong = []
    for file in LIBRARY.glob("*/**/*.py"):
        for other in own_files(file):
            if not other.is_relative_to(LIBRARY) or room_of(other) == room_of(file):
                continue
            allowed = (*SHARED, *PAPERS, "app") if room_of(file) in USE else tuple(SHARED)
            allowed = allowed if room_of(file) in (*USE, *PAPERS) else SHARED[room_of(file)]
            if room_of(other) not in allowed:
                wrong.append(f"{file.relative_to(ROOT)} imports {other.relative_to(ROOT)}")
    assert not wrong, "\n".join(wrong)


def test_rooms__a_module_that_one_paper_uses_lives_there():
    """Of the shared rooms; a loss may be one paper's, for losses are looked up together."""
    users: dict[Path, set[str]] = {}
    sources = [*LIBRARY.rglob("*.py"), *(ROOT / "stages").glob("*.py"), *(ROOT / "encoders").glob("*.py")]
    for file in [*sources, *(ROOT / "pipeline").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]:
        user = room_of(file) if file.is_relative_to(LIBRARY) else file.parent.name
        if user == "stages":
            rooms = {room_of(other) for other in closure(file) if other.is_relative_to(LIBRARY)}
            user = next(iter(rooms & set(PAPERS)), "main")
        for other in own_files(file):
            users.setdefault(other, set()).add(user)
    lonely = [
        f"{file.relative_to(ROOT)}: {', '.join(used)}"
        for file, used in users.items()
        if file.is_relative_to(LIBRARY)
        and room_of(file) not in (*PAPERS, "losses")
        and len(used) == 1
        and used <= {*PAPERS}
    ]
    assert not lonely, "\n".join(lonely)


def test_shared_rooms__stand_on_each_other_without_a_circle():
    assert set(TopologicalSorter(SHARED).static_order()) == set(SHARED)


def test_read_files__templates_that_a_template_extends_or_includes():
    found = read_files({ROOT / "stages/report.py"})
    assert {path.relative_to(LIBRARY).as_posix() for path in found} == {
        "grappa/report/advice.html.j2",
        "grappa/report/choice.html.j2",
        "grappa/report/report.html.j2",
        "grappa/report/report.md.j2",
        "grappa/report/summary.html.j2",
        "report/base.html.j2",
        "report/macros.html.j2",
    }


def test_stages__files_sections_and_graph_name_the_same():
    assert sorted(GRAPH) == STAGES
    assert sorted(set(PARAMS) - set(Lists.model_fields)) == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_stages__command_output_and_params_bear_the_stage_name(stage):
    words = body(stage)["cmd"].split()
    assert words[:2] == ["${root}/stages/run", stage]
    (out,) = body(stage)["outs"]
    assert out.split("/")[:2] == ["data", stage] and out in words
    assert any(str(param).split(".")[0] == stage for param in body(stage)["params"])
    assert body(stage)["desc"]


@pytest.mark.parametrize("stage", STAGES)
def test_stages__deps_are_the_rooms_of_the_import_closure(stage):
    declared = {dep.removeprefix("${root}/") for dep in body(stage)["deps"] if dep.startswith("${root}/")}
    needed = dependencies(stage)
    lines = [f"        - ${{root}}/{path}" for path in sorted(needed - declared)]
    assert declared == needed, "\n".join(
        [f"dvc.yaml, stage {stage}:", "missing in deps:", *lines, "too much in deps:", *sorted(declared - needed)]
    )


@pytest.mark.parametrize("stage", STAGES)
def test_stages__what_the_command_reads_is_a_dependency(stage):
    """Every data folder on the command line, the output aside, is in `deps` (one that stands for an item's may be)."""
    declared = {dep for dep in body(stage)["deps"] if not dep.startswith("${root}/")}
    out = body(stage)["outs"][0]
    read = {word for word in body(stage)["cmd"].split() if word.startswith("data/") and word != out}
    # These read the graph only for some items, and then ${item} is that folder.
    assert read - declared <= ({"data/knn_graph", "data/pseudo_labels"} if stage in ("fusion", "baseline") else set())


@pytest.mark.parametrize("stage", STAGES)
def test_stages__sources_that_read_a_list_depend_on_it(stage):
    """A stage that gathers items must rerun when the list changes: DVC sees a folder, not which names belong in it."""
    source = (ROOT / f"stages/{stage}.py").read_text()
    # What refuses values before a run decides nothing about the run's results.
    source = re.sub(r"    def fits\(self.*?(?=\n    (?:def |@)|\n\n\n)", "", source, flags=re.DOTALL)
    declared = set(map(str, body(stage)["params"]))
    for name in ("tasks", "fusions", "distillations", "supervised_models", "models", "mpcl", "tll", "mrt"):
        # One that reads only its own item depends on that item.
        own = source.replace("lists.tasks[task]", "").replace("lists.mpcl[run]", "").replace("lists.tll[study]", "")
        if f"lists.{name}" in own:
            assert name in declared
    if "seed: int" in source.split("def main")[1]:
        assert "seed" in declared
    borrowed = re.findall(r'\w+="([\w.]+)"', source.rpartition("command.run(main")[2])
    assert declared >= set(borrowed)


def test_imports__point_one_way():
    """Stages and pipeline stand on the library; its commands alone import the pipeline of the clone they run in."""
    stage_modules = {f"stages.{stage}" for stage in STAGES}
    for path in (ROOT / "stages").glob("*.py"):
        names = imports(path)
        assert not names & stage_modules, f"{path} imports a stage"
        assert not {n for n in names if n.split(".")[0] in {"pipeline", "prefect", "dvc", "tests", "benchmarks"}}, path
    for path in LIBRARY.rglob("*.py"):
        outside = {"stages", "tests", "benchmarks"} | (set() if room_of(path) in USE else {"pipeline"})
        assert not {name for name in imports(path) if name.split(".")[0] in outside}, path


def test_outputs__are_cached_and_never_persist():
    """`cache: false` cannot be restored by a colleague; `persist` leaves the run cache and resumes from stale files."""
    text = (ROOT / "dvc.yaml").read_text()
    assert "persist" not in text and "cache: false" not in text


def test_tests__mirror_the_sources():
    missing = [stage for stage in STAGES if not (ROOT / f"tests/test_{stage}.py").exists()]
    for path in LIBRARY.rglob("*.py"):
        # What a command does is tested where it is done, its words by tests/polygrain/cli/test_main.py.
        if not path.stem.startswith("__") and path.parent.name not in ("cli", "config"):
            test = ROOT / "tests" / path.relative_to(ROOT).with_name(f"test_{path.name}")
            missing += [] if test.exists() else [str(path.relative_to(ROOT))]
    assert not missing


def test_sources__no_pickle():
    for path in [path for name in ("stages", "pipeline", "polygrain") for path in (ROOT / name).rglob("*.py")]:
        assert not {n for n in imports(path) if n.split(".")[0] in {"pickle", "joblib", "dill"}}, path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "np.load"}:
                arguments = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                assert arguments.get("weights_only") is True or arguments.get("allow_pickle") is False, path
