"""SIGKILL at a random moment, to every kind of process of `make repro` and `polygrain flow`, on a small graph.

What is promised: nothing of the run stays, and the same command again, with nothing mended by hand, ends with the bytes
of a run that nobody disturbed.
"""

import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.hostile.outcome import Outcome
from tests.pipeline import dying, toy

COUNT = 44
TARGETS = {
    "repro": ("make", "guard", "dvc", "stage"),
    "flow": ("make", "flow", "server", "forks", "guard", "dvc", "stage"),
}
AT_ONCE = 3
EPOCH_SECONDS = 0.1
END_SECONDS, RUN_SECONDS = 60, 240


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Every target in turn, as often as `count` allows."""
    rng = random.Random(seed)
    seconds = {command: undisturbed(folder / command, command) for command in TARGETS}
    cases = [(command, role) for command, roles in TARGETS.items() for role in roles]
    rng.shuffle(cases)

    def case(number: int) -> Outcome:
        command, role = cases[number % len(cases)]
        found = kill(folder / str(number), command, role, moments[number] * seconds[command])
        shutil.rmtree(folder / str(number))
        return found

    moments = [rng.random() for _ in range(count)]
    # A run spends most of its time waiting.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(case, range(count))


def undisturbed(folder: Path, command: str) -> float:
    """The seconds that a run takes."""
    dying.make(folder, EPOCH_SECONDS)
    start = time.monotonic()
    toy.run(folder, *dying.make_command(folder, command), timeout=RUN_SECONDS)
    return time.monotonic() - start


def kill(folder: Path, command: str, role: str, moment: float) -> Outcome:
    """Kills the process of this role so many seconds after the start, or as soon as there is one; then runs again."""
    dying.make(folder, EPOCH_SECONDS)
    mark = uuid.uuid4().hex
    held = {"CUDA_VISIBLE_DEVICES": "0,1", "POLYGRAIN_SLOTS": str(folder / ".work" / "slots"), "TOY_MARK": mark}
    words = dying.make_command(folder, command)
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        started = subprocess.Popen(
            words, cwd=folder, env=toy.ENVIRONMENT | held, stdout=log, stderr=log, start_new_session=True
        )
    time.sleep(moment)
    killed = False
    while not killed and started.poll() is None:
        if (victim := dying.find(mark, role)) is not None:
            with suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGKILL)
                killed = True
        time.sleep(0.01)
    case = f"{command}: {role} after {moment:.1f} s{'' if killed else ', when it had ended'}"
    deadline = time.monotonic() + END_SECONDS
    while left := dying.marked(mark):
        if time.monotonic() > deadline:
            names = [" ".join(process.cmdline())[-80:] for process in left]
            end(left)
            return Outcome(case, "escape", f"still there after {END_SECONDS} s: {names}")
        time.sleep(0.1)
    started.wait()
    try:
        toy.run(folder, *words, timeout=RUN_SECONDS, **held)
        is_clean = toy.up_to_date(folder)
    except subprocess.TimeoutExpired:
        return Outcome(case, "hang", f"the next run took more than {RUN_SECONDS} s")
    except AssertionError as error:
        return Outcome(case, "raw", f"the next run needs a hand: {str(error)[-600:]}")
    finally:
        end(dying.marked(mark))
    found = {name: content.decode() for name, content in toy.texts(folder).items()}
    if found != dying.expected() or not is_clean:
        return Outcome(case, "silent", f"other bytes or not recorded: {found}")
    return Outcome(case, "fine")


def end(processes: list[psutil.Process]) -> None:
    """Leaves nothing of one case to the next."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
