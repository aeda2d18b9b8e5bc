"""One stage by one call of dvc, line by line, and the end of all calls at once."""

import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event

from pipeline import guard, slots
from pipeline.forks import DVC, Call, Forks

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
        self._changed = Condition()
        self._forks: Forks | None = None
        self._running: set[Call] = set()

    def run(
        self,
        command: list[str],
        folder: Path,
        line: Callable[[str], None],
        environment: dict[str, str] | None = None,
        descriptors: list[int] | None = None,
    ) -> int:
        """Runs the command in the folder, hands on each line it writes, and returns its exit code (143: stopped)."""
        with self._changed:
            if self.stopping.is_set():
                return 128 + signal.SIGTERM
            call = self._start(command, folder, environment or {}, descriptors or [])
            self._running.add(call)
        try:
            for text in call.lines:
                line(text.rstrip("\n"))
            return call.wait()
        except BaseException:
            call.stop()
            raise
        finally:
            call.close()
            with self._changed:
                self._running.discard(call)
                self._changed.notify_all()

    def _start(self, command: list[str], folder: Path, environment: dict[str, str], descriptors: list[int]) -> Call:
        """By the process that forks; a new one where that has died, as short memory may have it."""
        if self._forks is not None:
            try:
                return self._forks.start(command, folder, environment, descriptors)
            except ChildProcessError:
                self._forks.close()
        self._forks = Forks(folder)
        return self._forks.start(command, folder, environment, descriptors)

    def stop(self) -> None:
        """Ends every command; returns when all are gone."""
        self.stopping.set()
        with self._changed:
            for call in self._running:
                call.ask_to_stop()
            self._changed.wait_for(lambda: not self._running, guard.RECORD_SECONDS + 2 * guard.STAGE_SECONDS)
            forks, self._forks = self._forks, None
        if forks is not None:
            forks.close()


def reproduce(calls: Calls, folder: Path, stage: str, gpus: int, line: Callable[[str], None]) -> Outcome:
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
        command = [*DVC, "repro", "--single-item", stage]
        code = calls.run(command, folder, hear, environment, held.descriptors)
    lost = "stopped" if calls.stopping.is_set() else "failed"
    made = "ran" if ran else "cached"
    return Outcome(lost if code else made, time.monotonic() - start, tuple(tail))
