"""A full disk under every stage that writes: a clear error, nothing partial, and afterwards the same bytes.

What a file may grow to is limited (RLIMIT_FSIZE), from nothing to nearly all of what the stage writes; where the
system lets us, a small file system of its own lies under the output instead.
"""

import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

from benchmarks.hostile.outcome import Outcome
from tests.helpers.finished import finished_project

COUNT = 66
SECONDS = 300
SHARES = (0.0, 0.5, 0.97, 0.1)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()
    }


def largest(folder: Path) -> int:
    return max(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def mounted(place: Path, size: int) -> bool:
    """Whether a small file system could be laid over the folder; only a superuser may."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    return os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0


class Done(NamedTuple):
    """How a stage ended, and what it said."""

    code: int
    said: str


def start(command: str, project: Path, scratch: Path, limit: int | None) -> Done:
    """Runs a stage's command to its end; no file of it may grow beyond the limit."""

    def limited() -> None:
        signal.alarm(SECONDS)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        shlex.split(command),
        cwd=project,
        env=os.environ | {"PATH": path, "TMPDIR": str(scratch)},
        preexec_fn=limited,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Done(done.returncode, done.stderr)


def fill(project: Path, name: str, command: str, output: Path, share: float, small: bool) -> Outcome:
    """The stage on a disk that holds a share of what it writes, and then on one that holds all."""
    case = f"{name}: {share:.0%} of {'the disk' if small else 'its largest file'}"
    whole = contents(output)
    size = sum(map(len, whole.values())) if small else largest(output)
    limit = max(1 if small else 0, int(share * size))
    shutil.rmtree(output)
    with tempfile.TemporaryDirectory(dir=project.parent) as scratch:
        is_mounted = small and mounted(output.parent, max(4096, limit))
        try:
            done = start(command, project, Path(scratch), None if is_mounted else limit)
            left = [file.as_posix() for file in (output, output.with_name(output.name + ".partial")) if file.exists()]
            left += os.listdir(scratch)
        finally:
            if is_mounted:
                subprocess.run(["umount", str(output.parent)], check=True)
        again = start(command, project, Path(scratch), None)
    if -signal.SIGALRM in (done.code, again.code):
        return Outcome(case, "hang")
    same = again.code == 0 and contents(output) == whole
    said = done.said.strip().splitlines()[-1] if done.said.strip() else ""
    if not same:
        return Outcome(case, "silent", f"other bytes afterwards, ended with {again.code}: {again.said[-500:]}")
    if done.code == 0:
        return Outcome(case, "fine", "what it writes fits")
    if left:
        return Outcome(case, "silent", f"left: {left}")
    is_clear = said.startswith("error: the disk is full") and "free some space" in said
    return Outcome(case, "clear" if is_clear and "Traceback" not in done.said else "raw", done.said[-800:])


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    rng = random.Random(seed)
    project = finished_project(folder / "project")
    lock = YAML(typ="safe").load((project / "dvc.lock").read_text())["stages"]
    found = [(name, stage["cmd"], project / stage["outs"][0]["path"]) for name, stage in lock.items()]
    rng.shuffle(found)
    for i in range(count):
        name, command, output = found[i % len(found)]
        turn = i // len(found)
        # What lies beside the output would be hidden by a file system over its folder.
        small = turn % 2 == 1 and output.parent != project / "data"
        yield fill(project, name, command, output, SHARES[turn % len(SHARES)], small)
