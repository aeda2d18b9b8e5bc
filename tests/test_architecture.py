"""The shape of the project: one stage per file, imports one way, and `deps` that say what a stage really reads."""

import ast
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline import entries
from polygrain.config import versions
from polygrain.config.graph import items_of
from polygrain.config.lists import Lists
from polygrain.store import imports

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
    "report": (),
    "config": ("compute", "report", "sources", "store"),
    "runner": ("compute", "config", "store"),
    "clustering": ("compute",),
    "retrieval": ("compute", "config"),
    "losses": ("compute", "config"),
    "encoder": ("compute", "config", "runner", "store"),
    "fisher": ("clustering", "compute", "retrieval", "store"),
    "collection": ("compute", "config", "encoder", "fisher", "retrieval", "runner", "sources", "store"),
    "selection": ("clustering", "compute", "config", "encoder", "fisher", "retrieval", "runner", "store"),
    "training": ("compute", "config", "runner", "store"),
    "findings": ("config", "report", "store", "training"),
}
PAPERS = ("grappa", "gsp", "mpcl", "tll")  # they may import the shared rooms
USE = ("app", "cli", "new")  # they may import every room


def body(stage: str) -> dict:
    return GRAPH[stage].get("do", GRAPH[stage])


def room_of(file: Path) -> str:
    return file.relative_to(LIBRARY).parts[0]


def test_graph__is_as_make_graph_leaves_it():
    """From a person's lines alone: DVC cannot see imports, and a room that is missing in `deps` means stale results."""
    text = (ROOT / "dvc.yaml").read_text()
    by_hand = entries.written(text)
    assert text == entries.filled(by_hand), "run `make graph`"
    assert len(by_hand.splitlines()) <= 300


def test_versions__are_those_of_the_lock():
    assert (ROOT / "versions.yaml").read_text() == versions.text((ROOT / "requirements.lock").read_text())


@pytest.mark.parametrize("stage", STAGES)
def test_stages__command_and_output_bear_the_stage_name(stage):
    assert body(stage)["cmd"].split()[:3] == ["exec", "${root}/stages/run", stage]
    assert body(stage)["outs"][0].split("/")[:2] == ["data", stage]
    assert body(stage)["desc"]


def unset():
    """The stages without values of their own."""
    return {stage for stage in STAGES if "command.run(main, None" in (ROOT / f"stages/{stage}.py").read_text()}


def test_stages__files_sections_and_graph_name_the_same():
    """A branch that is off needs no section, nor does a stage without values."""
    sections = set(PARAMS) - set(Lists.model_fields)
    off = {stage for stage in STAGES if items_of(GRAPH[stage], PARAMS) in ({}, [])}
    assert sorted(GRAPH) == STAGES == sorted(sections | off | unset())


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
        others = {room_of(other) for other in imports.imported(file) if other.is_relative_to(LIBRARY)} - {"__init__.py"}
        wrong += [f"{file.relative_to(ROOT)} imports {other}" for other in others - allowed]
    assert not wrong, "\n".join(wrong)


def test_imports__point_one_way():
    """Stages and pipeline stand on the library; only what is for use imports the pipeline of the clone it runs in."""
    for file in [*(ROOT / "stages").glob("*.py"), *LIBRARY.rglob("*.py")]:
        assert not any(getattr(node, "level", 0) for node in imports.nodes(file)), f"{file}: relative import"
        outside = {"stages", "prefect", "dvc", "tests", "benchmarks", "pipeline"}
        if file.is_relative_to(LIBRARY) and room_of(file) in USE:
            outside -= {"pipeline"}
        assert not [name for name in imports.names(file) if name.split(".")[0] in outside], file


def test_imports__dvc_stands_behind_two_modules():
    """It promises to keep its commands only. Of DVC and Prefect, nothing else uses what they call private."""
    for file in {*(ROOT / "pipeline").glob("*.py")} - {*(ROOT / "pipeline").glob("dvc_*.py")}:
        named = {node.attr for node in imports.nodes(file) if isinstance(node, ast.Attribute)}
        named |= {name.rpartition(".")[2] for name in imports.names(file)}
        assert not {name for name in named if name.startswith("_") and not name.startswith("__")} - {"_exit"}, file
        assert not [name for name in imports.names(file) if name.split(".")[0] == "dvc"], file


def test_tests__mirror_the_sources():
    missing = [stage for stage in STAGES if not (ROOT / f"tests/test_{stage}.py").exists()]
    for path in LIBRARY.rglob("*.py"):
        # What a command does is tested where it is done, its words by tests/polygrain/cli/test_main.py.
        # A pooling of build.KNOWN is compared with its twin by poolings/test_build.py, an export target with the model
        # by export/test_program.py; a family goes the whole way in encoder/test_families.py;
        # sections of the report are drawn by tests/test_report.py; a kind of source is opened by test_images.py or
        # test_sources_and_doors.py.
        is_pooling = path.parent.name == "poolings" and path.stem not in ("build", "prototypes", "transport")
        is_elsewhere = path.parent.name in ("cli", "config", "families", "items", "kinds", "sections", "targets")
        if not path.stem.startswith("__") and not is_elsewhere and not is_pooling:
            test = ROOT / "tests" / path.relative_to(ROOT).with_name(f"test_{path.name}")
            missing += [] if test.exists() else [str(path.relative_to(ROOT))]
    assert not missing


def test_sources__no_pickle():
    for path in [path for name in ("stages", "pipeline", "polygrain") for path in (ROOT / name).rglob("*.py")]:
        assert not {name for name in imports.names(path) if name.split(".")[0] in {"pickle", "joblib", "dill"}}, path
        for node in imports.nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "np.load"}:
                arguments = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                assert arguments.get("weights_only") is True or arguments.get("allow_pickle") is False, path
