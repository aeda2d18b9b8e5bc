"""Nothing outlives the guard, however its command, its starter or itself is ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline import guard


def start(script: str, patience: float = 0.2) -> subprocess.Popen:
    arguments = [sys.executable, guard.__file__, str(os.getpid()), str(patience), "/bin/sh", "-c", script]
    return subprocess.Popen(arguments, start_new_session=True)


def wait_for(file: Path, lines: int = 1) -> list[int]:
    """The process ids that the script has written, once there are so many."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if file.exists() and len(found := file.read_text().split()) >= lines:
            return [int(word) for word in found]
        time.sleep(0.01)
    raise AssertionError("the script did not start")


def gone(pids: list[int], seconds: float = 8) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_main__hands_on_the_exit_code(script, code):
    assert start(script).wait(10) == code


def test_main__ends_what_the_command_left_behind(tmp_path):
    """Also a process that has left the session, as torchrun's workers do."""
    pids = tmp_path / "pids"
    process = start(f"setsid sh -c 'echo $$ >> {pids}; sleep 60' & sleep 0.2; exit 0")
    left = wait_for(pids)
    assert process.wait(10) == 0
    assert gone(left, 0.1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_main__a_signal_ends_all_of_it(tmp_path, number):
    pids = tmp_path / "pids"
    process = start(f"echo $$ >> {pids}; sh -c 'echo $$ >> {pids}; sleep 60' & sleep 60; echo late", patience=5)
    running = wait_for(pids, 2)
    process.send_signal(number)
    assert process.wait(10) == 143
    assert gone(running, 0.1)


def test_main__a_stage_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    quick = (
        f"import sys; sys.path.insert(0, {str(Path(guard.__file__).parent)!r}); import guard; guard.STAGE_SECONDS = .3;"
    )
    quick += (
        f"command = ['sh', '-c', \"sh -c 'trap : TERM; echo $$ >> {pids}; sleep 60'\"];"
        "sys.exit(guard.main(lambda: guard.popen(command), 9))"
    )
    process = subprocess.Popen([sys.executable, "-c", quick], start_new_session=True)
    stubborn = wait_for(pids)
    process.terminate()
    assert process.wait(10) == 143
    assert gone(stubborn, 0.1)


def test_main__the_command_may_finish_within_its_patience(tmp_path):
    """As dvc records a stage that has just ended."""
    process = start(
        f"sh -c 'echo $$ > {tmp_path}/pid; sleep 60'; sleep 0.3; echo recorded > {tmp_path}/out", patience=9
    )
    wait_for(tmp_path / "pid")
    process.terminate()
    assert process.wait(10) == 143
    assert (tmp_path / "out").read_text() == "recorded\n"


def test_main__a_killed_starter_takes_all_with_it(tmp_path):
    pids = tmp_path / "pids"
    script = f"sh -c 'echo $$ >> {pids}; sleep 60' & echo $$ >> {pids}; sleep 60"
    starter = (
        "import os, subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, {guard.__file__!r}, str(os.getpid()), '.2', "
        f"'sh', '-c', {script!r}], start_new_session=True); print(p.pid, flush=True); p.wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
    running = [int(process.stdout.readline()), *wait_for(pids, 2)]
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(running)


@pytest.mark.parametrize("named", [True, False])
def test_end_with_starter__ends_with_the_one_that_is_named(tmp_path, named):
    """A shell that is closed does not take what runs under nohup; a make that is killed does."""
    child = (
        "import os, time; from pipeline import guard; guard.end_with_starter(); "
        f"assert guard.STARTER not in os.environ; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); "
        "time.sleep(4)"
    )
    starter = (
        "import os, subprocess, sys, time; "
        f"os.environ.update({{'{guard.STARTER}': str(os.getpid())}} if {named} else {{}}); "
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", starter])
    running = wait_for(tmp_path / "pid")
    process.kill()
    process.wait()
    assert gone(running, 1.5) == named
    assert gone(running)


def test_main__a_starter_that_is_gone_already_starts_nothing(tmp_path):
    arguments = [sys.executable, guard.__file__, "1", "0", "touch", str(tmp_path / "made")]
    assert subprocess.run(arguments).returncode == (143 if os.getpid() != 1 else 0)
    assert not (tmp_path / "made").exists()
