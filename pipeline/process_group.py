"""Runs a command in a session of its own, and ends all of it: when it is told to, and when the caller dies.

`dvc` killed alone leaves its stage behind, and the next run would start a second writer of the same output. So what is
left of a command's session ends with the command. Where the caller is killed, the kernel ends the command, and each
stage ends with its dvc (polygrain/runner/command.py).
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from polygrain.runner.command import end_with_parent

STAGE_SECONDS = 5.0
"""A stage's time to end after SIGTERM, before SIGKILL."""
RECORD_SECONDS = 25.0
"""DVC's time to end by itself: it may be recording a stage that has just finished."""
STOPPED = 128 + signal.SIGTERM


def start(
    command: list[str], folder: Path, environment: Mapping[str, str] | None = None, **options: Any
) -> psutil.Popen:
    """The command in a session of its own, which ends with this thread; `python` is the one of this process."""
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    return psutil.Popen(
        command,
        cwd=folder,
        env=os.environ | path | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=end_with_parent,
        **options,
    )


def run(
    command: list[str],
    folder: Path,
    on_line: Callable[[str], None] | None = None,
    environment: Mapping[str, str] | None = None,
    stopping: Event | None = None,
    patience: float = RECORD_SECONDS,
) -> int:
    """Runs the command and returns its exit code: 143 once `stopping` is set, 128 + n where signal n killed it.

    `on_line` gets each line that it writes; without it, the lines go where those of this process go. When stopped, the
    command itself has `patience` seconds to end once what it has started is gone.
    """
    stopping = stopping or Event()
    if stopping.is_set():
        return STOPPED
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if on_line else {}
    process, text = start(command, folder, environment, **output), b""
    try:
        while process.poll() is None and not stopping.is_set():
            if on_line is None:
                stopping.wait(0.05)
            elif select.select([process.stdout], [], [], 0.1)[0]:
                text = pass_lines(text + os.read(process.stdout.fileno(), 1 << 16), on_line)
                time.sleep(0.01)
    finally:
        end(process, patience)
        if on_line is not None:
            os.set_blocking(process.stdout.fileno(), False)
            pass_lines(text + (process.stdout.read() or b"") + b"\n", on_line)
            process.stdout.close()
    if stopping.is_set():
        return STOPPED
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def pass_lines(text: bytes, on_line: Callable[[str], None]) -> bytes:
    """Calls `on_line` with each complete line; returns the rest behind the last one."""
    *lines, rest = text.split(b"\n")
    for line in lines:
        if line.strip():
            on_line(line.decode(errors="replace").rstrip())
    return rest


def end(process: psutil.Popen, patience: float) -> None:
    """Ends the command's children, so that dvc can record or give up; then the rest of its session."""
    asked: dict[psutil.Process, float] = {}
    deadline = time.monotonic() + patience
    while process.poll() is None and (now := time.monotonic()) < deadline:
        with suppress(psutil.NoSuchProcess):
            for child in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if child not in asked:
                        child.terminate()
                    elif now - asked[child] > STAGE_SECONDS:
                        child.kill()
                    asked.setdefault(child, now)
        time.sleep(0.05)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STAGE_SECONDS
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
    process.wait()


def stop_on_signals(stopping: Event) -> None:
    """SIGINT, SIGTERM and SIGHUP set `stopping` from here on."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.set())
