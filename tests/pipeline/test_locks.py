"""What a kill has left of DVC's list of paths in use is mended, and what is in use stays so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from zc.lockfile import LockFile

from pipeline import locks, ready
from tests.pipeline import toy

TORN = [
    "",
    "{",
    '{"write": {"a',
    "[]",
    "null",
    '{"write": {"a": {"pid": "x", "cmd": "y"}}}',
    '{"read": {"a": {}}}',
    "\x00" * 64,
]


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def process(root):
    """A process that stands in the clone and is called as dvc is."""
    command = [sys.executable, "-c", "input()", "-m", "dvc", "repro"]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def write(root: Path, text: str) -> Path:
    file = root / ".dvc/tmp/rwlock"
    file.write_text(text)
    return file


def gone() -> int:
    """A process id that nobody has."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("text", TORN)
def test_recover__a_torn_list(root, text):
    file = write(root, text)
    assert locks.recover(root) == f"{file} was left damaged by a run that was killed; it is renewed"
    assert not file.exists() and locks.recover(root) is None


def test_recover__entries_of_dead_processes(root):
    dead = {"pid": gone(), "cmd": "dvc repro"}
    file = write(root, json.dumps({"write": {"/a": dead}, "read": {"/b": [dead]}}))
    assert locks.recover(root) == f"{file} named processes that were killed; they are taken out"
    assert json.loads(file.read_text()) == {}


def test_recover__an_id_that_belongs_to_another_program_by_now(root):
    """DVC asks only whether the id is in use, and would wait for a stranger."""
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd="/", stdin=subprocess.PIPE) as stranger:
        file = write(root, json.dumps({"write": {"/a": {"pid": stranger.pid, "cmd": "dvc repro"}}}))
        assert locks.recover(root) is not None and json.loads(file.read_text()) == {}
        stranger.kill()


def test_recover__what_is_in_use_stays(root, process):
    alive, dead = {"pid": process.pid, "cmd": "dvc repro"}, {"pid": gone(), "cmd": "dvc repro"}
    file = write(root, json.dumps({"write": {"/a": alive}, "read": {"/b": [dead, alive], "/c": [dead]}}))
    assert locks.recover(root) is not None
    assert json.loads(file.read_text()) == {"write": {"/a": alive}, "read": {"/b": [alive]}}
    assert locks.recover(root) is None


def test_recover__not_while_dvc_is_at_work(root, process):
    file = write(root, "")
    with pytest.raises(ValueError, match=rf"is damaged, and dvc is at work in this clone \(process {process.pid}\)"):
        locks.recover(root)
    assert file.exists()
    process.kill()
    process.wait()
    assert locks.recover(root) is not None


def test_recover__waits_for_who_writes_it(root, monkeypatch):
    monkeypatch.setattr(locks, "SECONDS", 0.2)
    write(root, "")
    lock = LockFile(str(root / ".dvc/tmp/rwlock.lock"))
    with pytest.raises(ValueError, match="has been held for"):
        locks.recover(root)
    lock.close()
    assert locks.recover(root) is not None


def test_is_at_work__this_very_process_is_none(root):
    assert not locks.is_at_work(psutil.Process(os.getpid()), root)


def test_ready__a_run_goes_on_after_a_kill(tmp_path, monkeypatch, capsys):
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    (folder / ".dvc/tmp").mkdir()
    write(folder, "")
    assert "JSON structure is corrupted" in toy.run(folder, "dvc", "repro", "source", check=False)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["ready"])
    ready.main()
    assert "was left damaged by a run that was killed; it is renewed" in capsys.readouterr().err
    assert "Running stage 'source'" in toy.run(folder, "dvc", "repro", "source")
