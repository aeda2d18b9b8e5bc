"""One stage by one call of dvc, line by line, and the end of all calls at once."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from pipeline import guard, slots

# The flag waits for the repository's lock; without it, a stage that ends while another hashes is lost after 3 seconds.
DVC = [sys.executable, "-m", "dvc", "--wait-for-lock"]
TAIL = 20
# What dvc adds to every stage for people at a terminal.
HINTS = (
    "To track the changes",
    "\tgit add",
    "To enable auto staging",
    "\tdvc config",
    "Use `dvc push`",
    "Updating lock",
)


@dataclass(frozen=True)
class Outcome:
    """What became of a stage: `ran`, `cached`, `failed`, `stopped`; seconds; the last lines it wrote."""

    result: str
    seconds: float
    tail: tuple[str, ...]


class Calls:
    """The commands under way; `stop` ends them, with all they have started, and lets no other begin."""

    def __init__(self) -> None:
        self.stopping = Event()
        self._lock = Lock()
        self._running: set[subprocess.Popen[str]] = set()

    def run(
        self,
        command: list[str],
        folder: Path,
        line: Callable[[str], None],
        environment: dict[str, str] | None = None,
        descriptors: list[int] | None = None,
    ) -> int:
        """Runs the command in the folder, hands on each line it writes, and returns its exit code (143: stopped)."""
        with self._lock:
            if self.stopping.is_set():
                return 128 + signal.SIGTERM
            process = subprocess.Popen(
                [sys.executable, guard.__file__, str(os.getpid()), str(guard.RECORD_SECONDS), *command],
                cwd=folder,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                pass_fds=descriptors or [],
            )
            self._running.add(process)
        try:
            with process:
                try:
                    for text in process.stdout or []:
                        line(text.rstrip("\n"))
                except BaseException:
                    process.terminate()
                    raise
            return process.returncode
        finally:
            # Should the guard itself have been killed, its session is what it could no longer end.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """Ends every command; returns when all are gone."""
        self.stopping.set()
        with self._lock:
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(guard.RECORD_SECONDS + 2 * guard.STAGE_SECONDS)


def reproduce(
    calls: Calls, folder: Path, stage: str, gpus: int, line: Callable[[str], None], options: tuple[str, ...] = ()
) -> Outcome:
    """Runs one stage, and nothing it reads from, with as many GPUs as it asks for, and says what became of it."""
    tail: deque[str] = deque(maxlen=TAIL)
    ran = False

    def hear(text: str) -> None:
        nonlocal ran
        ran = ran or text.startswith(f"Running stage '{stage}'")
        if text.strip() and not text.startswith(HINTS):
            tail.append(text)
            line(text)

    with slots.held(gpus, slots.visible(), calls.stopping) as held:
        start = time.monotonic()
        if held is None:
            return Outcome("stopped", 0.0, ())
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(held.devices)} if held.devices else {}
        command = [*DVC, "repro", "--single-item", *options, stage]
        code = calls.run(command, folder, hear, environment, held.descriptors)
    lost = "stopped" if calls.stopping.is_set() else "failed"
    made = "ran" if ran else "cached"
    return Outcome(lost if code else made, time.monotonic() - start, tuple(tail))
