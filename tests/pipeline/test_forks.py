"""dvc by a fork: what the one that is started anew would do, and nothing left however anyone dies."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pipeline.forks import DVC, Forks
from tests.pipeline import toy
from tests.pipeline.test_guard import gone, wait_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("forks") / "toy", first=1, second=1)


@pytest.fixture
def forks(folder):
    forks = Forks(folder)
    yield forks
    forks.close()


def ended(call) -> tuple[int, str]:
    text = call.lines.read()
    code = call.wait()
    call.close()
    return code, text


def begun(forks, folder, tmp_path):
    """A command with a child of its own, and the process ids of both."""
    script = f"echo $$ >> {tmp_path}/pids; sh -c 'echo $$ >> {tmp_path}/pids; sleep 60'; echo late"
    call = forks.start(["sh", "-c", script], folder, {}, [])
    return call, wait_for(tmp_path / "pids", 2)


@pytest.mark.parametrize("arguments", [["status", "--quiet"], ["status"], ["repro", "nothing"], ["nonsense"], ["-V"]])
def test_start__dvc_says_and_returns_what_it_does_when_started_anew(forks, folder, arguments):
    anew = subprocess.run(
        [*DVC, *arguments], cwd=folder, env=toy.ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    code, text = ended(forks.start([*DVC, *arguments], folder, {}, []))
    assert code == anew.returncode
    # argparse names the program by how it was started.
    assert text.replace("dvc ", "") == anew.stdout.replace("dvc ", "")


def test_start__dvc_runs_a_stage_under_its_own_name(forks, folder, tmp_path):
    running = toy.make(tmp_path / "toy", first=1, second=1, then={"source": f"echo $PPID > {tmp_path}/pids; sleep .3"})
    call = forks.start([*DVC, "repro", "--single-item", "source"], running, {}, [])
    (dvc,) = wait_for(tmp_path / "pids")
    assert psutil.Process(dvc).name() == "dvc"
    code, text = ended(call)
    assert code == 0 and text.startswith("Running stage 'source':")
    assert (running / "data/source/text").read_text() == "source\n"


def test_start__each_call_has_its_own_folder_and_environment(forks, folder, tmp_path):
    calls = [
        forks.start(["sh", "-c", "echo $WORD; pwd; exit 3"], place, {"WORD": word}, [])
        for place, word in ((folder, "one"), (tmp_path, "two"))
    ]
    assert [ended(call) for call in calls] == [(3, f"one\n{folder}\n"), (3, f"two\n{tmp_path}\n")]
    assert ended(forks.start(["sh", "-c", "echo $WORD"], folder, {}, [])) == (0, "\n")


def test_start__a_descriptor_is_held_until_the_call_ends(forks, folder, tmp_path):
    slot = os.open(tmp_path / "slot", os.O_CREAT | os.O_RDWR)
    fcntl.flock(slot, fcntl.LOCK_EX)
    call, _ = begun(forks, folder, tmp_path)
    held = forks.start(["sh", "-c", "sleep 60; true"], folder, {}, [slot])
    os.close(slot)
    other = os.open(tmp_path / "slot", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    held.stop()
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    call.stop()


def test_stop__ends_the_command_with_its_children(forks, folder, tmp_path):
    call, pids = begun(forks, folder, tmp_path)
    call.stop()
    assert gone(pids, 0.1)


def test_wait__a_guard_that_is_killed_takes_all_with_it_at_once(forks, folder, tmp_path):
    call, pids = begun(forks, folder, tmp_path)
    psutil.Process(pids[0]).parent().kill()
    # What is left holds the lines open; to read them all first would be to wait for its end.
    assert ended(call)[0] == 137
    assert gone(pids, 1)


def test_wait__a_wish_to_stop_that_comes_too_late_changes_nothing(forks, folder):
    for turn in range(40):
        call = forks.start(["true"], folder, {}, [])
        time.sleep(turn / 2000)
        call.ask_to_stop()
        call.ask_to_stop()
        code, _ = ended(call)
        assert code in (0, 143) and call.wait() == code


def test_stop__dvc_records_a_stage_that_ends_well_meanwhile(forks, tmp_path):
    wait = f"trap '' TERM; echo $$ > {tmp_path}/pids; sleep 1; sleep 1"
    running = toy.make(tmp_path / "toy", first=1, second=1, then={"source": wait})
    call = forks.start([*DVC, "repro", "--single-item", "source"], running, {}, [])
    wait_for(tmp_path / "pids")
    call.stop()
    assert "source:" in (running / "dvc.lock").read_text()


def test_start__a_folder_that_is_missing(forks, tmp_path):
    code, text = ended(forks.start(["true"], tmp_path / "nowhere", {}, []))
    assert code == 1 and "nowhere" in text


def test_start__refused_once_the_process_is_gone_while_calls_under_way_end_well(forks, folder, tmp_path):
    call = forks.start(["sh", "-c", f"echo $$ >> {tmp_path}/pids; sleep .5; exit 7"], folder, {}, [])
    wait_for(tmp_path / "pids")
    forks._process.kill()
    forks._process.wait()
    with pytest.raises(ChildProcessError, match="start the run again"):
        forks.start(["true"], folder, {}, [])
    assert ended(call)[0] == 7


def test_main__a_starter_that_is_killed_leaves_nothing_and_the_command_ends_well(folder, tmp_path):
    """dvc must have the time to put away its locks: killed outright, it leaves a file that no later dvc can read."""
    command = f"exec 2> /dev/null; sh -c 'echo $$ >> {tmp_path}/pids; sleep 60'; sleep .2; echo well > {tmp_path}/ended"
    script = (
        "import sys, time; from pathlib import Path; from pipeline.forks import Forks; place = Path(sys.argv[1]);"
        "forks = Forks(place); print(forks._process.pid, flush=True);"
        "call = forks.start(['sh', '-c', sys.argv[2]], place, {}, []); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", script, str(folder), command]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=toy.ROOT) as starter:
        forks = int(starter.stdout.readline())
        running = wait_for(tmp_path / "pids")
        starter.send_signal(signal.SIGKILL)
    assert gone([forks, *running])
    deadline = time.monotonic() + 10
    while not (tmp_path / "ended").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (tmp_path / "ended").exists()


def test_load__leaves_one_thread(forks, folder):
    """A fork of a process with several may find a lock that nobody will ever release."""
    ended(forks.start(["true"], folder, {}, []))
    assert psutil.Process(forks._process.pid).num_threads() == 1
    start = time.monotonic()
    forks.close()
    assert time.monotonic() - start < 5
