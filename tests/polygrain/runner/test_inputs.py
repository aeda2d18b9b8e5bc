"""What changes while a stage runs is not recorded as computed, whenever it changes and whatever starts the stage."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from dvc.dependency.param import ParamsDependency
from dvc.repo import Repo

from pipeline import dvc_api, graph
from polygrain.config.compose import read_params
from polygrain.runner import inputs
from tests.helpers import toy

ROOT = Path(__file__).parents[3]
# Its result is what it reads, and ten epochs. EDITS says what happens beside it, at which moment.
STAGE = """
import json, logging, os, sys
from pathlib import Path
import rooms.words
from polygrain.runner import command, inputs
from polygrain.store import work

def edit(moment):
    exec(json.loads(os.environ["EDITS"]).get(moment, ""))

def main(images: Path, output: Path, *, seed: int) -> str:
    edit("before")
    text = f"{seed} {rooms.words.WORD} {sorted(path.name for path in images.iterdir())}"
    state = work.folder("tll_pairs", "k", [seed], [Path("rooms/words.py")]) / "epochs"
    state.parent.mkdir(parents=True, exist_ok=True)
    before = int(state.read_text()) if state.exists() else 0
    print("epochs before:", before, flush=True)
    for epoch in range(before + 1, 11):
        state.write_text(str(epoch))
        edit(str(epoch))
        inputs.watch.look()
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
      deps: ["${raw}", steps/read.py, rooms]
      params: [seed]
      outs: ["data/read/${key}"]
"""
# Counts our own looks at the user's folder, in all processes.
COUNTER = """
import sys
def count(event, given):
    if event == "os.scandir" and str(given[0]).endswith("images"):
        frame = sys._getframe()
        while frame and not frame.f_code.co_filename.endswith("runner/inputs.py"):
            frame = frame.f_back
        if frame:
            open("walks", "a").write(".")
sys.addaudithook(count)
"""
EDITS = {
    "value": "p = Path('params.yaml'); p.write_text(p.read_text().replace('\\nseed: 0', '\\nseed: 1'))",
    "source": "Path('rooms/words.py').write_text('WORD = \"other\"')",
    "new image": "Path('images/c.png').write_text('c')",
    "other image": "Path('images/a.png').write_text('b')",  # as long as before
    "lost image": "Path('images/b.png').unlink()",
    "graph": "p = Path('dvc.yaml'); p.write_text(p.read_text().replace('[seed]', '[seed, adaptor]'))",
}
STARTS = {
    "run": [sys.executable, "-m", "polygrain", "run", "read@k128"],
    "flow": [sys.executable, "-m", "polygrain", "flow", "read@k128"],
    "ours": [*dvc_api.DVC, "repro", "read@k128"],
    "dvc": ["dvc", "repro", "read@k128"],
}
# Each edit under our dvc, at every moment. Plain DVC records what a stage cannot see any more: it hashes later.
CASES = [
    ("value", "after", "ours"), ("value", "loaded", "run"), ("value", "loaded", "dvc"), ("source", "ended", "ours"),
    ("source", "after", "flow"), ("source", "before", "dvc"), ("new image", "loaded", "ours"),
    ("new image", "after", "dvc"), ("other image", "before", "ours"), ("lost image", "after", "ours"),
    ("graph", "after", "dvc"), ("graph", "ended", "ours"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path) -> Path:
    params = (ROOT / "params.yaml").read_text() + "\nraw: images\n"
    folder = toy.found(tmp_path / "toy", {"params.yaml": params, "dvc.yaml": GRAPH})
    (folder / ".dvcignore").write_text((ROOT / ".dvcignore").read_text())
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


def run(folder: Path, start: str, edits: dict[str, str] | None = None) -> str:
    path = f"{folder}:{ROOT}"
    return toy.run(folder, *STARTS[start], check=False, PYTHONPATH=path, EDITS=json.dumps(edits or {}))


@pytest.mark.slow
@pytest.mark.parametrize(("edit", "moment", "start"), CASES)
def test_require_same__a_result_is_recorded_under_what_it_was_made_with(folder, edit, moment, start):
    output = run(folder, start, {moment: EDITS[edit]})
    if (edit, moment, start) == CASES[0]:
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
    reads = inputs.Reads(["room"], {}, [])
    (tmp_path / "room/inner.partial").mkdir(parents=True)
    before = inputs.state(tmp_path, reads)
    for name in ("__pycache__/a.pyc", "b.partial", "inner.partial/c"):
        (tmp_path / "room" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "room" / name).write_text("x")
    assert inputs.state(tmp_path, reads) == before
    (tmp_path / "room/a.py").write_text("x")
    assert inputs.state(tmp_path, reads) != before


def test_digest__no_inode_and_no_time_of_what_is_small(tmp_path, monkeypatch):
    """A network mount gives other inodes at each look, a switch of branches other times."""
    for limit, is_small in ((16 << 20, True), (1, False)):
        monkeypatch.setattr(inputs, "SMALL", limit)
        file = tmp_path / "room/a.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("one")
        before, inode = inputs.digest(tmp_path), file.stat().st_ino
        shutil.copytree(file.parent, tmp_path / "copy").rename(tmp_path / "other")
        shutil.rmtree(file.parent)
        (tmp_path / "other").rename(file.parent)
        assert file.stat().st_ino != inode and inputs.digest(tmp_path) == before
        os.utime(file, (1, 1))
        assert (inputs.digest(tmp_path) == before) == is_small
        file.write_text("two")
        assert inputs.digest(tmp_path) != before


def test_require_loaded__knows_the_start_better_than_to_a_second(tmp_path):
    (tmp_path / "before.py").touch()
    time.sleep(0.1)
    program = (
        "from pathlib import Path; from polygrain.runner import inputs; inputs.require_loaded(Path(), ['before.py'])\n"
        "Path('after.py').touch(); inputs.require_loaded(Path(), ['after.py'])"
    )
    said = toy.run(tmp_path, sys.executable, "-c", program, check=False)
    assert said.strip().splitlines()[-1] == "ValueError: after.py changed while this stage started: run again"


@pytest.mark.slow
@pytest.mark.parametrize(("start", "walks"), [("ours", 0), ("dvc", 2)])
def test_watch__looks_at_the_users_folders_where_our_dvc_does_not(folder, start, walks):
    (folder / "sitecustomize.py").write_text(COUNTER)
    run(folder, start)
    looks = folder / "walks"
    assert is_recorded(folder) and len(looks.read_text() if looks.exists() else "") == walks


SWITCH = "import subprocess; subprocess.run(['git', 'checkout', '-q', '{}'], check=True)"
UNDO = SWITCH.format("main") + "; subprocess.run(['git', 'checkout', '-q', '.'], check=True)"
COURSES = [
    # What happens when, and whether the result is kept.
    ({"1": SWITCH.format("other"), "9": UNDO}, True, "dvc"),
    ({"ended": EDITS["source"]}, False, "ours"),
    ({"3": EDITS["source"], "6": UNDO}, True, "ours"),
    ({"10": EDITS["value"]}, False, "ours"),
    ({"5": "Path('rooms/words.py').write_text('# A comment\\nWORD = 1')"}, False, "dvc"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("edits", "is_kept", "start"), COURSES)
def test_look__an_edit_that_is_undone_costs_no_epoch(folder, edits, is_kept, start):
    """It is said once; where it is undone too late, the next run finds all epochs, and the checkpoint goes then."""
    toy.run(folder, "git", "checkout", "-q", "-b", "other")
    (folder / "rooms/words.py").write_text("WORD = 'of another branch'")
    toy.commit(folder)
    toy.run(folder, "git", "checkout", "-q", "main")
    said = run(folder, start, edits)
    assert said.count("changed while this stage runs: undo it") == ("ended" not in edits)
    assert is_recorded(folder) == is_kept
    if not is_kept:
        toy.run(folder, "git", "checkout", "-q", ".")
        assert "epochs before: 10" in run(folder, start) and is_recorded(folder)
    assert (folder / "data/read/k128/text").read_text() == expected(folder)
    assert not list(folder.glob(".work/*/*/*"))


@pytest.mark.slow
@pytest.mark.parametrize(("start", "seed"), [("dvc", "abc"), ("ours", "1")])
def test_put_back__a_run_that_fails_costs_no_result(folder, start, seed):
    """DVC removes the last one before it starts the stage, which is refused, or killed."""
    run(folder, start)
    values, before = folder / "params.yaml", expected(folder)
    values.write_text(values.read_text().replace("\nseed: 0", f"\nseed: {seed}"))
    assert "failed to reproduce" in run(folder, start, {"before": "os.kill(os.getpid(), 9)"})
    assert (folder / "data/read/k128/text").read_text() == before


@pytest.mark.slow
def test_read_by__as_dvc_reads_the_graph():
    """Every stage of the project's own graph: the same paths, and by file the same values."""
    with Repo(str(ROOT)) as repo:
        for stage in repo.stage.collect(str(ROOT / "dvc.yaml")):
            values = {dep.def_path: dep.params for dep in stage.deps if isinstance(dep, ParamsDependency)}
            paths = [dep.def_path for dep in stage.deps if not isinstance(dep, ParamsDependency)]
            assert inputs.read_by(ROOT, stage.addressing)[:2] == (paths, values), stage.addressing
