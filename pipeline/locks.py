"""What a kill can leave of DVC's list of paths in use, .dvc/tmp/rwlock: a torn file, or entries of dead processes.

DVC rewrites the file in place and reads it before every stage. Torn, it stops all runs until someone deletes it by
hand; an entry comes into force again as soon as its process id belongs to anybody else.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from dvc.rwlock import SCHEMA
from voluptuous import Invalid
from zc.lockfile import LockError, LockFile

SECONDS = 60.0
"""The guard is held for moments; whoever holds it longer is stopped or swapped out."""
PROGRAMS = {"dvc", "pipeline.forks"}


def is_at_work(process: psutil.Process, root: Path) -> bool:
    """Whether the process is a dvc in this clone; one that may not be looked at may be."""
    try:
        words = {Path(word).name for word in process.cmdline()} | {process.name()}
        if not words & PROGRAMS or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.cwd()).is_relative_to(root)
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False


def is_alive(pid: int, root: Path) -> bool:
    with suppress(psutil.NoSuchProcess, ValueError, OverflowError):
        return pid == os.getpid() or is_at_work(psutil.Process(pid), root)
    return False


def read(file: Path) -> dict | None:
    """{"read": {path: [owner]}, "write": {path: owner}}; None where DVC could not read it."""
    try:
        return SCHEMA(json.loads(file.read_bytes()))
    except (ValueError, Invalid, RecursionError):
        return None


def kept(found: dict, root: Path) -> dict:
    """The entries whose processes are alive."""
    alive = {"read": {}, "write": {}}
    for path, owner in found["write"].items():
        if is_alive(owner["pid"], root):
            alive["write"][path] = owner
    for path, owners in found["read"].items():
        if living := [owner for owner in owners if is_alive(owner["pid"], root)]:
            alive["read"][path] = living
    return {mode: entries for mode, entries in alive.items() if entries}


def recover(root: Path) -> str | None:
    """Mends the list; what it did, None where nothing was wrong. ValueError while those who wrote it may be at work."""
    file = root / ".dvc" / "tmp" / "rwlock"
    if not file.exists():
        return None
    with guarded(file):
        found = read(file)
        if found is None:
            # Under the guard nobody is writing it, so it is a kill's; who is at work still counts on lost entries.
            others = [one.pid for one in psutil.process_iter() if one.pid != os.getpid() and is_at_own(one, root)]
            if others:
                raise ValueError(
                    f"{file} is damaged, and dvc is at work in this clone (process {', '.join(map(str, others))}): "
                    "wait until it has ended, or end it, and start again"
                )
            file.unlink()
            return f"{file} was left damaged by a run that was killed; it is renewed"
        alive = kept(found, root)
        if alive == {mode: entries for mode, entries in found.items() if entries}:
            return None
        partial = file.with_name("rwlock.partial")
        partial.write_text(json.dumps(alive), encoding="utf-8")
        os.replace(partial, file)
        return f"{file} named processes that were killed; they are taken out"


def is_at_own(process: psutil.Process, root: Path) -> bool:
    """As `is_at_work`, of all processes there are: those of other users are not in this clone."""
    with suppress(psutil.Error, OSError):
        return process.uids().real == os.getuid() and is_at_work(process, root)
    return False


@contextmanager
def guarded(file: Path) -> Iterator[None]:
    """Holds the lock that DVC takes for every look at the list."""
    guard, deadline = str(file.with_name("rwlock.lock")), time.monotonic() + SECONDS
    while True:
        try:
            lock = LockFile(guard)
            break
        except LockError:
            if time.monotonic() > deadline:
                raise ValueError(f"{guard} has been held for {SECONDS:.0f} s, by a dvc that was stopped?") from None
            time.sleep(0.05)
    try:
        yield
    finally:
        lock.close()


def mend(root: Path) -> None:
    """`recover`, with a line on standard error that says what it did."""
    if said := recover(root):
        sys.stderr.write(f"{said}\n")
