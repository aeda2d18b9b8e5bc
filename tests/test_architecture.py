"""The shape of the project: one stage per file, imports one way, and `deps` that say what a stage really reads."""

import ast
import re
from functools import cache
from pathlib import Path

import jinja2
import jinja2.meta
import pytest
from ruamel.yaml import YAML

from polygrain.config import versions
from polygrain.config.graph import items_of
from polygrain.config.lists import Lists
from polygrain.store import work

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "polygrain"
STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")
GRAPH = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
PARAMS = YAML(typ="safe").load((ROOT / "params.yaml").read_text())
# The shared rooms, each with the rooms that it may import. They stand in order: an import points upwards in this list.
SHARED = {
    "compute": (),
    "store": ("compute",),
    "sources": ("compute", "store"),
    "config": ("compute", "sources", "store"),
    "runner": ("compute", "config", "store"),
    "clustering": ("compute",),
    "retrieval": ("compute", "config"),
    "losses": ("compute", "config"),
    "encoder": ("compute", "config", "runner", "store"),
    "fisher": ("clustering", "compute", "retrieval", "store"),
    "collection": ("compute", "config", "encoder", "fisher", "retrieval", "runner", "sources", "store"),
    "selection": ("clustering", "compute", "config", "encoder", "fisher", "retrieval", "runner", "store"),
    "training": ("compute", "config", "runner", "store"),
    "report": (),
    "findings": ("report", "store"),
}
PAPERS = ("grappa", "gsp", "mpcl", "tll")  # they may import the shared rooms
USE = ("app", "cli", "new")  # they may import every room
TABLES = [*LIBRARY.rglob("*.j2"), *LIBRARY.rglob("*.csv")]


def body(stage: str) -> dict:
    return GRAPH[stage].get("do", GRAPH[stage])


def room_of(file: Path) -> str:
    return file.relative_to(LIBRARY).parts[0]


@cache
def nodes(file: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(file.read_text()))]


@cache
def imports(file: Path) -> set[str]:
    """Dotted names of what a file imports; `from a import b` is a.b where that is a module, else a."""
    names = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if work.module(name) else node.module for name in inner}
    return names


def read_files(files: set[Path]) -> set[Path]:
    """Tables and templates that modules name, by their path below polygrain or by their name in the same folder."""
    found = set()
    for file in files:
        words = {node.value for node in nodes(file) if isinstance(node, ast.Constant)}
        for path in TABLES:
            below = path.relative_to(LIBRARY).as_posix()
            is_named = {below, below.removesuffix(".html.j2"), below.removesuffix(".md.j2")} & words
            if is_named or (path.name in words and path.parent == file.parent):
                found.add(path)
    todo = [file for file in found if file.suffix == ".j2"]
    while todo:  # what templates extend, include or import
        tree = jinja2.Environment().parse(todo.pop().read_text())
        named = {LIBRARY / name for name in jinja2.meta.find_referenced_templates(tree)} - found
        found |= named
        todo += named
    return found


def dependency(file: Path) -> Path:
    """What stands for a source in `deps`: its folder; a loss, and a module directly in a paper's room, itself."""
    is_alone = file.is_relative_to(LIBRARY) and file.parent.name in ("losses", *PAPERS)
    return file if is_alone or not file.is_relative_to(LIBRARY) else file.parent


def dependencies(stage: str) -> set[str]:
    files = {*work.sources(stage).values()}
    found = {dependency(file) for file in files | read_files(files) if file.name != "__init__.py"}
    return {path.relative_to(ROOT).as_posix() for path in found if not found & set(path.parents)}


@pytest.mark.parametrize("stage", STAGES)
def test_stages__deps_are_the_rooms_of_the_import_closure(stage):
    """DVC cannot see imports: a room that is missing in `deps` means stale results."""
    declared = {dep.removeprefix("${root}/") for dep in body(stage)["deps"] if dep.startswith("${root}/")}
    needed = dependencies(stage)
    missing = [f"        - ${{root}}/{path}" for path in sorted(needed - declared)]
    assert declared == needed, "\n".join(
        [f"dvc.yaml, stage {stage}:", "missing in deps:", *missing, "too much in deps:", *sorted(declared - needed)]
    )


@pytest.mark.parametrize("stage", STAGES)
def test_stages__depend_on_the_versions_of_what_they_import(stage):
    """But pages: nothing is computed from them."""
    names = {name.split(".")[0] for file in work.sources(stage).values() for name in imports(file)}
    needed = (
        [] if stage.endswith("report") else sorted(versions.PACKAGES[name] for name in names & {*versions.PACKAGES})
    )
    declared = [param["${versions}"] for param in body(stage)["params"] if isinstance(param, dict)]
    assert declared == ([needed] if needed else []), f"- ${{versions}}: [{', '.join(needed)}]"


def test_versions__are_those_of_the_lock():
    assert (ROOT / "versions.yaml").read_text() == versions.text((ROOT / "requirements.lock").read_text())


@pytest.mark.parametrize("stage", STAGES)
def test_stages__what_the_command_reads_is_a_dependency(stage):
    declared = {dep for dep in body(stage)["deps"] if not dep.startswith("${root}/")}
    words = body(stage)["cmd"].split()
    read = {word for word in words if word.startswith("data/") and word not in body(stage)["outs"]}
    # These read the folder only for some items, whose ${item} is that folder.
    assert read - declared <= ({"data/knn_graph", "data/pseudo_labels"} if stage == "baseline" else set())


@pytest.mark.parametrize("stage", STAGES)
def test_stages__sources_that_read_a_list_depend_on_it(stage):
    """A stage that gathers items must rerun when the list changes: DVC sees a folder, not which names belong in it."""
    text = (ROOT / f"stages/{stage}.py").read_text()
    text = re.sub(r"    def fits\(self.*?(?=\n    (?:def |@)|\n\n\n)", "", text, flags=re.DOTALL)  # only checks values
    declared = set(map(str, body(stage)["params"]))
    lists = ("tasks", "fusions", "supervised_models", "models", "mpcl", "tll", "mrt")
    # One that reads only its own item depends on that item.
    needed = {name for name in lists if re.search(rf"lists\.{name}(?!\w|\[(?:task|run|study)\])", text)}
    needed |= set(re.findall(r'\w+="([\w.]+)"', text.rpartition("command.run(main")[2]))
    needed |= {"seed"} if "seed: int" in text.split("def main")[1] else set()
    assert declared >= needed


@pytest.mark.parametrize("stage", STAGES)
def test_stages__command_output_and_params_bear_the_stage_name(stage):
    words = body(stage)["cmd"].split()
    outs = body(stage)["outs"]
    assert words[:3] == ["exec", "${root}/stages/run", stage]
    assert outs[0].split("/")[:2] == ["data", stage] and set(outs) <= set(words)
    assert any(str(param).split(".")[0] == stage for param in body(stage)["params"]) == (stage not in unset())
    assert body(stage)["desc"]


def unset():
    """The stages without values of their own."""
    return {stage for stage in STAGES if "command.run(main, None" in (ROOT / f"stages/{stage}.py").read_text()}


def test_stages__files_sections_and_graph_name_the_same():
    """A branch that is off needs no section, nor does a stage without values."""
    sections = set(PARAMS) - set(Lists.model_fields)
    off = {stage for stage in STAGES if items_of(GRAPH[stage], PARAMS) in ({}, [])}
    assert sorted(GRAPH) == STAGES == sorted(sections | off | unset())


def test_stages__those_that_processes_share_ask_for_a_gpu_each():
    """`stages/run` has torchrun start them."""
    shared = set(re.findall(r"\*:(\w+)", (ROOT / "stages/run").read_text()))
    assert shared == {stage for stage in STAGES if body(stage).get("meta", {}).get("gpu") == "each"}


def test_outputs__are_cached_and_never_persist():
    """`cache: false` cannot be restored by a colleague; `persist` leaves the run cache and resumes from stale files."""
    text = (ROOT / "dvc.yaml").read_text()
    assert "persist" not in text and "cache: false" not in text


def test_rooms__say_what_belongs_there():
    folders = [path for path in LIBRARY.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert {path.name for path in folders if path.parent == LIBRARY} == {*SHARED, *PAPERS, *USE}
    for folder in folders:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_rooms__import_one_way():
    order = list(SHARED)
    assert all(order.index(other) < order.index(room) for room, others in SHARED.items() for other in others)
    wrong = []
    for file in LIBRARY.glob("*/**/*.py"):
        room = room_of(file)
        every = (*SHARED, *PAPERS, *USE)
        allowed = {room, *(every if room in USE else SHARED if room in PAPERS else SHARED[room])}
        others = {room_of(other) for other in work.imported(file) if other.is_relative_to(LIBRARY)} - {"__init__.py"}
        wrong += [f"{file.relative_to(ROOT)} imports {other}" for other in others - allowed]
    assert not wrong, "\n".join(wrong)


def test_imports__point_one_way():
    """Stages and pipeline stand on the library; only what is for use imports the pipeline of the clone it runs in."""
    for file in [*(ROOT / "stages").glob("*.py"), *LIBRARY.rglob("*.py")]:
        outside = {"stages", "prefect", "dvc", "tests", "benchmarks", "pipeline"}
        if file.is_relative_to(LIBRARY) and room_of(file) in USE:
            outside -= {"pipeline"}
        assert not [name for name in imports(file) if name.split(".")[0] in outside], file


def test_imports__dvc_stands_behind_one_module():
    """It promises to keep its commands only. Of DVC and Prefect, nothing else uses what they call private."""
    for file in {*(ROOT / "pipeline").glob("*.py")} - {ROOT / "pipeline/dvc_api.py"}:
        named = {node.attr for node in nodes(file) if isinstance(node, ast.Attribute)}
        named |= {name.rpartition(".")[2] for name in imports(file)}
        assert not {name for name in named if name.startswith("_") and not name.startswith("__")} - {"_exit"}, file
        assert not [name for name in imports(file) if name.split(".")[0] == "dvc"], file


def test_tests__mirror_the_sources():
    missing = [stage for stage in STAGES if not (ROOT / f"tests/test_{stage}.py").exists()]
    for path in LIBRARY.rglob("*.py"):
        # What a command does is tested where it is done, its words by tests/polygrain/cli/test_main.py.
        # A pooling of build.KNOWN is compared with its twin by poolings/test_build.py.
        is_pooling = path.parent.name == "poolings" and path.stem not in ("build", "prototypes", "transport")
        if not path.stem.startswith("__") and path.parent.name not in ("cli", "config") and not is_pooling:
            test = ROOT / "tests" / path.relative_to(ROOT).with_name(f"test_{path.name}")
            missing += [] if test.exists() else [str(path.relative_to(ROOT))]
    assert not missing


def test_sources__no_pickle():
    for path in [path for name in ("stages", "pipeline", "polygrain") for path in (ROOT / name).rglob("*.py")]:
        assert not {name for name in imports(path) if name.split(".")[0] in {"pickle", "joblib", "dill"}}, path
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "np.load"}:
                arguments = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                assert arguments.get("weights_only") is True or arguments.get("allow_pickle") is False, path
