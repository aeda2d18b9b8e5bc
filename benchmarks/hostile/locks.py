"""What a kill can leave of DVC's list of paths in use: cut anywhere, filled with anything, full of the dead.

After `recover`, DVC itself takes and gives back the paths of a stage, without handwork; what a living dvc holds stays
held.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dvc.fs import localfs
from dvc.lock import LockError
from dvc.rwlock import rwlock

from benchmarks.hostile.outcome import Outcome
from pipeline import locks

COUNT = 400


def dead() -> int:
    """A process id that nobody has."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def drawn(draw: random.Random, root: Path, pids: list[int]) -> dict:
    """A list as DVC writes it, of paths that stages read and write."""
    owners = [{"pid": pid, "cmd": "dvc repro"} for pid in pids]
    paths = [str(root / "data" / draw.choice("abc")) for _ in range(4)]
    return {"write": {paths[0]: draw.choice(owners)}, "read": {path: [draw.choice(owners)] for path in paths[1:]}}


def torn(draw: random.Random, text: bytes) -> tuple[str, bytes]:
    """The list as a kill, a full disk or a crash of the machine leaves it."""
    place = draw.randrange(len(text))
    return draw.choice(
        [
            ("empty", b""),
            (f"cut at {place}", text[:place]),
            (f"zeros from {place}", text[:place] + bytes(len(text) - place)),
            (f"other bytes at {place}", text[:place] + draw.randbytes(8) + text[place + 8 :]),
            ("two lists", text + text),
            (f"an older, longer list beneath, from {place}", text + text[place:]),
            ("whole", text),
        ]
    )


def attempt(root: Path, case: str, is_held: bool) -> Outcome:
    """DVC's own look at the list after it was mended."""
    try:
        said = locks.recover(root)
        with rwlock(
            str(root / ".dvc/tmp"), localfs, "dvc repro", [str(root / "data/a")], [str(root / "data/b")], False
        ):
            return Outcome(case, "silent", "taken from a living dvc") if is_held else Outcome(case, "fine", said or "")
    except (ValueError, LockError) as error:
        return Outcome(case, "clear" if is_held else "silent", str(error))
    except Exception as error:
        return Outcome(case, "raw", f"{type(error).__name__}: {error}")


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    draw = random.Random(seed)
    tmp = folder / ".dvc/tmp"
    tmp.mkdir(parents=True)
    gone = [dead(), os.getpid() + 2**21, 1]
    # It says when it runs: a process that has just started has no name yet.
    command = [sys.executable, "-c", "print(flush=True); input()", "-m", "dvc", "repro"]
    for number in range(count):
        is_held = number % 8 == 7
        found = drawn(draw, folder, gone)
        if is_held:
            with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
                living.stdout.readline()
                found["write"] = {str(folder / "data/a"): {"pid": living.pid, "cmd": "dvc repro"}}
                name, text = torn(draw, json.dumps(found).encode())
                (tmp / "rwlock").write_bytes(text)
                yield attempt(folder, f"{name}, a dvc at work", True)
                living.kill()
        else:
            name, text = torn(draw, json.dumps(found).encode())
            (tmp / "rwlock").write_bytes(text)
            yield attempt(folder, name, False)
        (tmp / "rwlock").unlink(missing_ok=True)
