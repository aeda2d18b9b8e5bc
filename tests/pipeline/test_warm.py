"""A stage by a fork: what one that is started afresh would do, and nothing left however anyone dies."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from pipeline import warm
from pipeline.warm import Warm
from polygrain.runner import warm as client
from tests.pipeline import toy
from tests.pipeline.test_guard import gone

STAGE = """\
import json, os, signal, subprocess, sys, time

def main(words):
    print("said", words, os.getcwd(), os.environ.get("WORD"), flush=True)
    print("complained", file=sys.stderr)
    with open(words[1], "a") as stream:
        print(os.getpid(), file=stream)
        print(os.getppid(), file=stream)
    if words[0] == "fail":
        raise ValueError("no")
    if words[0] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if words[0] == "leave":
        print(subprocess.Popen(["sleep", "60"]).pid, file=open(words[1], "a"))
    if words[0] == "wait":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        print("waits", file=open(words[1], "a"), flush=True)
        time.sleep(60)
    sys.exit(int(words[0]) if words[0].isdigit() else None)

if __name__ == "__main__":
    main(sys.argv[1:])
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root/polygrain/runner").mkdir(parents=True)
    (tmp_path / "root/stages/__init__.py").touch()
    (tmp_path / "root/stages/one.py").write_text(STAGE)
    shutil.copy(toy.ROOT / "stages/run", tmp_path / "root/stages/run")
    shutil.copy(client.__file__, tmp_path / "root/polygrain/runner/warm.py")
    return tmp_path / "root"


@pytest.fixture
def loaded(root):
    variables = dict(os.environ)
    made = Warm(root)
    # pytest's own variables change while a test runs.
    made.environment = variables | made.environment
    yield made
    made.close()


def start(root, variables, *words, output=subprocess.DEVNULL) -> subprocess.Popen:
    return subprocess.Popen(
        [root / "stages/run", "one", *map(str, words)],
        cwd=root.parent,
        env=os.environ | variables | {"PATH": toy.ENVIRONMENT["PATH"]},
        stdout=output,
        stderr=output,
        text=True,
    )


def done(root, variables, *words) -> tuple[int, str, str]:
    process = start(root, variables, *words, output=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def parent(file) -> int:
    return int(file.read_text().split()[1])


@pytest.mark.parametrize("word", ["none", "3", "fail", "a 'word' of é"])
def test_fork__says_and_returns_what_a_fresh_start_does(root, loaded, tmp_path, word):
    afresh = done(root, {}, word, tmp_path / "afresh")
    code, out, err = done(root, loaded.environment, word, tmp_path / "afresh")
    assert (code, out) == afresh[:2]
    # A traceback also names how the module came to be run.
    assert err.splitlines()[0] == afresh[2].splitlines()[0] == "complained"
    assert err.splitlines()[-1] == afresh[2].splitlines()[-1]
    first, second = (int(line) for line in (tmp_path / "afresh").read_text().split()[1::2])
    assert (first == os.getpid(), second == loaded.process.pid) == (True, True)


def test_fork__a_stage_that_is_killed_is_told_as_such(root, loaded, tmp_path):
    assert done(root, loaded.environment, "die", tmp_path / "pids")[0] == 128 + signal.SIGKILL


def test_fork__a_changed_source_or_variable_starts_afresh(root, loaded, tmp_path):
    for number, word in enumerate(("0", "0")):
        assert done(root, loaded.environment, word, tmp_path / f"{number}")[0] == 0
        assert parent(tmp_path / f"{number}") == loaded.process.pid
    assert "heard" in done(root, loaded.environment | {"WORD": "heard"}, "0", tmp_path / "word")[1]
    assert parent(tmp_path / "word") != loaded.process.pid
    assert done(root, loaded.environment | {"POLYGRAIN_WORD": "free"}, "0", tmp_path / "free")[0] == 0
    assert parent(tmp_path / "free") == loaded.process.pid
    (root / "stages/one.py").write_text(STAGE.replace("said", "now says"))
    assert done(root, loaded.environment, "0", tmp_path / "new")[1].startswith("now says")
    assert parent(tmp_path / "new") != loaded.process.pid


def test_fork__a_source_that_cannot_be_imported_says_so_itself(root, loaded, tmp_path):
    (root / "stages/one.py").write_text("import nothing_of_this_name\n")
    code, _, err = done(root, loaded.environment, "0", tmp_path / "pids")
    assert code == 1 and "nothing_of_this_name" in err


def test_fork__where_nobody_answers_it_starts_afresh(root, tmp_path):
    assert done(root, {warm.SOCKET: "nobody"}, "0", tmp_path / "pids")[0] == 0


def test_fork__words_that_are_no_request_end_nothing(root, loaded, tmp_path):
    assert done(root, loaded.environment, "0", tmp_path / "first")[0] == 0
    for text in (b"", b"\0", b"\xff" * 64, b"\2\0\0\0[]"):
        with socket.socket(socket.AF_UNIX) as stray:
            stray.connect(f"\0{loaded.environment[warm.SOCKET]}")
            stray.sendall(text)
    assert done(root, loaded.environment, "0", tmp_path / "second")[0] == 0
    assert parent(tmp_path / "second") == loaded.process.pid


def test_signal__reaches_the_stage_and_its_code_comes_back(root, loaded, tmp_path):
    asked = start(root, loaded.environment, "wait", tmp_path / "pids")
    wait_for_line(tmp_path / "pids", "waits")
    asked.terminate()
    assert asked.wait(20) == 7


@pytest.mark.parametrize("victim", ["asker", "server", "close"])
def test_death__of_any_side_ends_the_stage(root, loaded, tmp_path, victim):
    asked = start(root, loaded.environment, "wait", tmp_path / "pids")
    wait_for_line(tmp_path / "pids", "waits")
    stage = int((tmp_path / "pids").read_text().split()[0])
    {"asker": asked.kill, "server": loaded.process.kill, "close": loaded.close}[victim]()
    assert asked.wait(20) != 0
    assert gone([stage])


def test_end__nothing_that_a_stage_has_started_stays(root, loaded, tmp_path):
    assert start(root, loaded.environment, "leave", tmp_path / "pids").wait(20) == 0
    assert gone([int((tmp_path / "pids").read_text().split()[2])])


def test_server__ends_with_its_starter(root, tmp_path):
    code = (
        "import sys, time, pathlib; from pipeline.warm import Warm; "
        "made = Warm(pathlib.Path(sys.argv[1])); print(made.process.pid, flush=True); time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code, root], cwd=toy.ROOT, stdout=subprocess.PIPE, text=True)
    server = int(starter.stdout.readline())
    assert psutil.pid_exists(server)
    starter.kill()
    starter.communicate()
    assert gone([server])


def test_warm__a_folder_without_stages_has_none(tmp_path):
    made = Warm(tmp_path)
    assert made.environment == {}
    made.close()


def wait_for_line(file, text) -> None:
    deadline = time.monotonic() + 60
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
