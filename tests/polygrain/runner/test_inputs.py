"""What changes while a stage runs is not recorded as computed, whenever it changes and whatever starts the stage."""

import sys
from pathlib import Path

import pytest
from dvc.dependency.param import ParamsDependency
from dvc.repo import Repo

from benchmarks import toy
from pipeline import dvc_api, graph
from polygrain.config.compose import read_params
from polygrain.runner import inputs

ROOT = Path(__file__).parents[3]
# Its result is what it reads. EDIT is what happens beside it, at the moment WHEN.
STAGE = """
import logging, os, sys
from pathlib import Path
import rooms.words
from polygrain.runner import command

def edit(moment):
    if os.environ.get("WHEN") == moment:
        exec(os.environ["EDIT"])

def main(images: Path, output: Path, *, seed: int) -> str:
    edit("before")
    text = f"{seed} {rooms.words.WORD} {sorted(path.name for path in images.iterdir())}"
    edit("after")
    output.mkdir(parents=True, exist_ok=True)
    (output / "text").write_text(text)
    return "written"

edit("loaded")
logging.shutdown = lambda: edit("ended")  # the last call of a stage
command.run(main, None)
"""
GRAPH = """
stages:
  read:
    foreach: ${granularities}
    do:
      cmd: exec python steps/read.py images data/read/${key}
      deps: [images, steps/read.py, rooms]
      params: [seed]
      outs: ["data/read/${key}"]
"""
EDITS = {
    "value": "p = Path('params.yaml'); p.write_text(p.read_text().replace('\\nseed: 0', '\\nseed: 1'))",
    "source": "Path('rooms/words.py').write_text('WORD = \"other\"')",
    "new image": "Path('images/c.png').write_text('c')",
    "other image": "Path('images/a.png').write_text('b')",  # as long as before
    "lost image": "Path('images/b.png').unlink()",
    "graph": "p = Path('dvc.yaml'); p.write_text(p.read_text().replace('[seed]', '[seed, adaptor]'))",
}
QUICK = [("value", "after", "ours")]
STARTS = {
    "run": [sys.executable, "-m", "polygrain", "run", "read@k128"],
    "flow": [sys.executable, "-m", "polygrain", "flow", "read@k128"],
    "ours": [*dvc_api.DVC, "repro", "read@k128"],
    "dvc": ["dvc", "repro", "read@k128"],
}
# Each edit once under each start. What a stage cannot see any more, plain DVC records: it hashes a moment later.
MOMENTS = ("loaded", "before", "after", "ended")
CASES = [
    (edit, MOMENTS[(i + j) % (3 if start == "dvc" else 4)], start)
    for j, start in enumerate(STARTS)
    for i, edit in enumerate(EDITS)
    if start != "flow" or edit in ("value", "source")
]


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = toy.found(tmp_path / "toy", {"params.yaml": (ROOT / "params.yaml").read_text(), "dvc.yaml": GRAPH})
    texts = {"steps/read.py": STAGE, "rooms/words.py": "WORD = 'word'", "images/a.png": "a", "images/b.png": "b"}
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    toy.commit(folder)
    return folder


def expected(folder: Path) -> str:
    """What the stage makes of what lies there now."""
    seed = read_params(folder / "params.yaml")["seed"]
    word = (folder / "rooms/words.py").read_text().split("=")[1].strip(" '\"")
    return f"{seed} {word} {[path.name for path in sorted((folder / 'images').iterdir())]}"


def run(folder: Path, start: str, **environment: str) -> str:
    return toy.run(folder, *STARTS[start], check=False, PYTHONPATH=f"{folder}:{ROOT}", **environment)


@pytest.mark.parametrize(
    ("edit", "moment", "start"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES if case not in QUICK)],
)
def test_require_same__a_result_is_recorded_under_what_it_was_made_with(folder, edit, moment, start):
    output = run(folder, start, WHEN=moment, EDIT=EDITS[edit])
    if (edit, moment, start) in QUICK:
        assert "seed changed while this stage ran: run again" in output
    text = folder / "data/read/k128/text"
    if is_recorded(folder):
        assert text.read_text() == expected(folder)
    runs = [path for path in folder.glob(".dvc/cache/runs/*/*/*") if path.is_file()]
    run(folder, start)
    assert is_recorded(folder) and text.read_text() == expected(folder)
    assert edit == "graph" or not runs or start == "dvc"  # a colleague would get it by the run cache


def is_recorded(folder: Path) -> bool:
    return not graph.load(folder, ["read@k128"])[0].stale


def test_state__byte_code_and_unfinished_outputs_are_no_input(tmp_path):
    reads = inputs.Reads(["room"], {})
    (tmp_path / "room/inner.partial").mkdir(parents=True)
    before = inputs.state(tmp_path, reads)
    for name in ("__pycache__/a.pyc", "b.partial", "inner.partial/c"):
        (tmp_path / "room" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "room" / name).write_text("x")
    assert inputs.state(tmp_path, reads) == before
    (tmp_path / "room/a.py").write_text("x")
    assert inputs.state(tmp_path, reads) != before


def test_read_by__as_dvc_reads_the_graph():
    """Every stage of the project's own graph: the same paths, and by file the same values."""
    with Repo(str(ROOT)) as repo:
        for stage in repo.stage.collect(str(ROOT / "dvc.yaml")):
            values = {dep.def_path: dep.params for dep in stage.deps if isinstance(dep, ParamsDependency)}
            paths = [dep.def_path for dep in stage.deps if not isinstance(dep, ParamsDependency)]
            assert inputs.read_by(ROOT, stage.addressing) == (paths, values), stage.addressing
