"""What DVC says and locks, as we take it; what it knows of stages and runs is in test_graph.py and test_share.py."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc import dvcfile
from dvc.dependency import param
from dvc.exceptions import ConfirmRemoveError
from dvc.rwlock import rwlock
from dvc.stage import Stage
from dvc.stage.cache import StageCache
from dvc.utils.serialize import dumps_yaml, loads_yaml

from pipeline import dvc_api, dvc_command, graph
from tests.helpers import toy


@pytest.fixture
def folder(ran, tmp_path, monkeypatch) -> Path:
    """A copy of a repository whose every stage has run, from somewhere else."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(ran, tmp_path / "toy")


@pytest.mark.slow
def test_Repo__wait_for_lock(ran):
    program = (
        "import sys, time; from pathlib import Path; from pipeline import dvc_api\n"
        "with dvc_api.opened(Path(sys.argv[1])): print('held', flush=True); time.sleep(3.6)"
    )
    command = [sys.executable, "-c", program, str(ran)]
    with subprocess.Popen(command, env=toy.ENVIRONMENT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert len(graph.load(ran)) == 8  # dvc itself would give up after 3 seconds
        assert holder.wait(5) == 0


def test_IgnoreInCollectedDirError__and_others_of_the_libraries_below_dvc_are_one_sentence(folder, refusal):
    (folder / "data/source/.dvcignore").touch()
    said = refusal(folder, "run")
    assert said.startswith("error: DVC cannot go on: IgnoreInCollectedDirError: ") and ".dvcignore" in said


def test_record_only_what_ran__sources_imports_and_frozen_stages(tmp_path, monkeypatch):
    """Nothing runs of them, so nothing has changed meanwhile; an import asks its source for no news."""
    for owner, name in (
        (Stage, "run"),
        (Stage, "_run_stage"),
        (StageCache, "save"),
        (dvcfile, "modify_yaml"),
        (param, "load_path"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # as they are again after the test
    dvc_command.record_only_what_ran()
    stages = "{frozen: {cmd: exit 1, deps: [raw], outs: [old], frozen: true}, "
    stages += "last: {cmd: cat raw/* outside imported old > made, deps: [raw, outside, imported, old], outs: [made]}}"
    folder, other = (toy.found(tmp_path / name, {"imported": "i"}) for name in ("toy", "other"))
    for name, text in {"dvc.yaml": f"stages: {stages}", "old": "o", "../outside": "u", "raw/a": "a"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    toy.run(folder, "git", "rm", "-q", "imported")
    for line in ("add raw", "import-url ../outside", f"import {other} imported", "commit -f frozen", "repro"):
        assert dvc_command.main(line.split()) == 0, line
    shutil.rmtree(other)
    (folder / "raw/b").write_text("b")  # a new picture
    assert graph.load(folder) and dvc_command.main(["repro"]) == 0 and (folder / "made").read_text() == "abuio"
    with dvc_api.opened(folder) as repo:
        dvc_api.record(graph.plan(repo, folder).values())
    assert not graph.to_do(graph.load(folder))


def test_parsed_once__again_after_a_change(tmp_path):
    """Also after one that keeps the size."""
    calls, file, read = [], tmp_path / "params.yaml", []
    load = dvc_command.parsed_once(lambda path, fs: calls.append(path) or Path(path).read_text())
    for text in ("a: 1", "a: 2", "a: 22"):
        file.write_text(text)
        os.utime(file, ns=(0, len(read)))  # two writes may fall into one tick of the clock
        read += [load(str(file), None), load(str(file), None)]
    assert read == ["a: 1", "a: 1", "a: 2", "a: 2", "a: 22", "a: 22"] and len(calls) == 3


SHARED = {"augmentation": {"crop": 0.5}, "scales": []}
ENTRIES = {name: {"cmd": f"{name} " * 40, "params": SHARED} for name in ("one", "a@2", "three")}
LOCK = {"schema": "2.0", "stages": ENTRIES}


# As DVC writes it, and as someone may have left it.
TEXT = dumps_yaml({"schema": "2.0", "stages": {name: {"cmd": name} for name in ENTRIES}})
EDITED = {
    "empty": "",
    "no stage": dumps_yaml({"schema": "2.0", "stages": {}}),
    "anchors": dumps_yaml(LOCK),
    "data sets": dumps_yaml(LOCK | {"datasets": []}),
    "plain": TEXT,
    "no end of line": TEXT.rstrip(),
    "schema last": TEXT.partition("\n")[2] + "schema: '2.0'\n",
    "end of document": TEXT + "...\n",
    "comment": TEXT.replace("stages:\n", "stages:\n  # why\n"),
    "comment between": TEXT.replace("  three:\n", "  # why\n  three:\n"),
    "indented": TEXT.replace("\n  ", "\n    "),
}


@pytest.mark.parametrize("before", EDITED)
@pytest.mark.parametrize(
    "change", [{"one": ENTRIES["one"]}, {"a@2": {"cmd": "new"}}, {"four": ENTRIES["one"]}], ids=len
)
def test_modified_lock__as_dvc_writes_it(before, change, tmp_path):
    """But without anchors; twice the same, and what has not changed keeps its text."""
    texts = []
    for modify in (dvc_command.modify_yaml, dvc_command.modified_lock, dvc_command.modified_lock):
        (tmp_path / "dvc.lock").write_text(EDITED[before])
        for _ in range(2):
            with modify(tmp_path / "dvc.lock") as data:
                data.setdefault("schema", "2.0")
                data.setdefault("stages", {}).update(change)
        texts.append((tmp_path / "dvc.lock").read_text())
    expected, *found = map(loads_yaml, texts)
    assert found == [expected, expected] and list(found[0]["stages"]) == list(expected["stages"])
    assert texts[1] == texts[2] and "&id" not in texts[1]


def test_rwlock__another_run_is_named_and_no_way_to_break_its_lock(folder):
    """Once, whatever it holds."""
    holder = {"pid": os.getpid(), "cmd": "dvc repro"}
    where = {str(folder / "data/source"): holder, str(folder / "data"): holder}
    (folder / ".dvc/tmp/rwlock").write_text(json.dumps({"read": {}, "write": where}))
    with pytest.raises(ValueError, match=rf"^another run is at work here.*PID {os.getpid()}\): dvc repro$") as refused:
        graph.load(folder)
    assert str(refused.value).count("dvc repro") == 1


def test_is_told__no_hints_nor_warnings_of_folders_that_are_empty(folder, tmp_path):
    """Beside commands of dvc, and in what is asked of it here."""
    (folder / "empty").mkdir()
    file = folder / "dvc.yaml"
    file.write_text(file.read_text().replace("deps: [data/second]", "deps: [data/second, empty]"))
    program = (
        "import sys; from pathlib import Path; from pipeline import dvc_api, graph\n"
        "with dvc_api.opened(folder := Path(sys.argv[1])) as repo:\n"
        "    dvc_api.record(graph.plan(repo, folder).values())"
    )
    assert toy.run(folder, sys.executable, "-c", program, str(folder)) == ""
    assert "empty" in (folder / "dvc.lock").read_text()


def test_ConfirmRemoveError__names_the_folder_and_what_to_do(folder):
    with pytest.raises(ValueError, match="holds files that no run has recorded: delete"), dvc_api.opened(folder):
        raise ConfirmRemoveError("/some where")


def test_rwlock__where_the_list_lies_and_how_it_names_processes(folder):
    with dvc_api.opened(folder) as repo, rwlock(repo.tmp_dir, repo.fs, "dvc repro", [str(folder / "a")], [], False):
        file = folder / ".dvc/tmp/rwlock"
        assert f'"pid": {os.getpid()}' in file.read_text() and Path(f"{file}.lock").exists()
