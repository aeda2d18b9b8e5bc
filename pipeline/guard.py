"""Runs one command so that nothing of it outlives it, nor its starter: `python guard.py STARTER PATIENCE COMMAND...`.

`dvc` killed alone leaves its stage behind, and the next run starts a second writer on the same output. So between the
flow and dvc stands this process. The kernel hands it every orphan of the command and tells it when the starter is gone:
by a signal where that is a process id, by a closed channel where pipeline/forks.py has forked it. It ends the rest when
the command ends, and all of it on SIGTERM, SIGINT or the starter's death: stages first, so that dvc can put away its
locks and, while someone still reads what it says, record what had just finished; after PATIENCE seconds dvc itself.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Protocol

import psutil

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
STAGE_SECONDS = 5.0
"""What a stage has to end after SIGTERM, before SIGKILL."""
RECORD_SECONDS = 20.0
"""The patience with dvc: it may be recording a stage that had just finished."""
STARTER = "POLYGRAIN_STARTER"
"""Names the process that a command of this package must not outlive: the Makefile says so, a shell does not."""
stopping = False


class Command(Protocol):
    """A child: a `psutil.Popen`, or a `psutil.Process` that was forked."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...


def kernel(option: int, value: int | bytes) -> None:
    """Linux's prctl; other systems do without, and then only a starter that is killed outright leaves processes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_starter() -> None:
    """Has the kernel send this process SIGTERM when its starter dies, where the environment names one.

    A `make` that is killed takes nothing with it: what it has started must look after that itself.
    """
    starter = os.environ.pop(STARTER, None)
    if starter is None:
        return
    kernel(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Whoever died before the call above sends no signal.
    if os.getppid() != int(starter):
        sys.exit(143)


def stop(number: int, frame: FrameType | None) -> None:
    global stopping
    stopping = True


def descendants(command: int) -> list[psutil.Process]:
    """Every process below this one but the command itself; orphans are below it too."""
    return [process for process in psutil.Process().children(recursive=True) if process.pid != command]


def end(processes: list[psutil.Process], since: dict[psutil.Process, float]) -> None:
    """SIGTERM to those met for the first time, SIGKILL to those that had it `STAGE_SECONDS` ago."""
    for process in processes:
        first = process not in since
        asked = since.setdefault(process, time.monotonic())
        try:
            if first:
                process.terminate()
            elif time.monotonic() - asked > STAGE_SECONDS:
                process.kill()
        except psutil.NoSuchProcess:
            continue


def reap() -> None:
    """Takes the exit codes of adopted orphans, which else stay as zombies."""
    for process in psutil.Process().children():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue


def end_all(command: Command, patience: float) -> None:
    """Ends the stages, again and again while dvc may start another, then dvc."""
    since: dict[psutil.Process, float] = {}
    deadline = time.monotonic() + patience
    while command.poll() is None:
        late = [command] if time.monotonic() >= deadline else []
        end(descendants(command.pid) + late, since)
        time.sleep(0.05)


def popen(arguments: list[str], folder: Path | None = None) -> psutil.Popen:
    """The command, in the folder, killed by the kernel should this process be."""
    return psutil.Popen(arguments, cwd=folder, preexec_fn=lambda: kernel(PR_SET_PDEATHSIG, signal.SIGKILL))


def main(start: Callable[[], Command], patience: float, asked: Callable[[], bool] = lambda: False) -> int:
    """The exit code of the command that `start` begins; 143 if it was stopped, 128 + n if signal n killed it."""
    global stopping
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    kernel(PR_SET_CHILD_SUBREAPER, 1)
    command = start()
    while command.poll() is None and not stopping:
        # Never assigned from its old value: a signal handled meanwhile would be lost.
        if asked():
            stopping = True
        time.sleep(0.02)
    if stopping:
        end_all(command, patience)
    since: dict[psutil.Process, float] = {}
    while left := descendants(command.pid):
        end(left, since)
        reap()
        time.sleep(0.05)
    if stopping:
        return 143
    return command.returncode if command.returncode >= 0 else 128 - command.returncode


if __name__ == "__main__":
    os.environ[STARTER], limit, *words = sys.argv[1:]
    end_with_starter()
    sys.exit(main(lambda: popen(words), float(limit)))
