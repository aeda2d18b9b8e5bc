"""Nothing that a command has started outlives it, however it ends."""

import subprocess
import sys
from pathlib import Path
from threading import Event, Timer

import pytest

from pipeline import process_group
from tests.helpers import toy


@pytest.fixture
def mark(tmp_path) -> dict[str, str]:
    return {"TOY_MARK": str(tmp_path)}


def test_run__lines_folder_variables_and_exit_code(tmp_path):
    lines = []
    command = ["sh", "-c", "echo one; echo; echo $WORD >&2; pwd; printf end; exit 3"]
    assert process_group.run(command, tmp_path, lines.append, {"WORD": "two"}) == 3
    assert lines == ["one", "two", str(tmp_path), "end"]
    assert process_group.run(["sh", "-c", "kill -9 $$"], tmp_path, lines.append) == 137


def test_run__finds_this_python_where_nothing_is_activated(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    lines = []
    assert process_group.run(["sh", "-c", "command -v python; command -v ls"], tmp_path, lines.append) == 0
    assert lines[0] == str(Path(sys.executable).parent / "python") and len(lines) == 2


def test_run__what_the_command_leaves_behind_ends_with_it(tmp_path, mark):
    assert process_group.run(["sh", "-c", "sleep 60 & exit 0"], tmp_path, print, mark) == 0
    assert toy.survivors(str(tmp_path), 0.2) == []


def test_run__stopped_the_children_end_first_and_the_command_may_still_record(tmp_path, mark):
    """As dvc does, which records or gives up after its stage has ended; a child that takes no notice is killed."""
    stopping, lines = Event(), []
    Timer(0.5, stopping.set).start()
    command = ["sh", "-c", "sleep 60; sleep 0.3; echo recorded"]
    assert process_group.run(command, tmp_path, lines.append, mark, stopping) == 143
    assert "recorded" in lines and toy.survivors(str(tmp_path), 0.2) == []
    assert process_group.run(command, tmp_path, lines.append, mark, stopping) == 143  # and none begins any more


def test_run__a_stage_that_takes_no_notice_is_killed(tmp_path, mark, monkeypatch):
    monkeypatch.setattr(process_group, "STAGE_SECONDS", 0.3)
    stopping = Event()
    Timer(0.5, stopping.set).start()
    command = ["sh", "-c", "trap '' TERM; sh -c 'while :; do sleep 0.1; done'; exit 1"]
    assert process_group.run(command, tmp_path, print, mark, stopping) == 143
    assert toy.survivors(str(tmp_path), 0.2) == []


def test_run__the_command_ends_with_a_caller_that_is_killed(tmp_path, mark):
    program = "from pathlib import Path; from pipeline import process_group as p; p.run(['sleep', '60'], Path('.'))"
    with subprocess.Popen([sys.executable, "-c", program], env=toy.ENVIRONMENT | mark, cwd=toy.ROOT) as caller:
        while not any(process.name() == "sleep" for process in toy.marked(str(tmp_path))):
            assert caller.poll() is None
        caller.kill()
    assert toy.survivors(str(tmp_path)) == []
