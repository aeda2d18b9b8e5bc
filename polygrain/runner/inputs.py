"""The inputs of a stage: they are the same before and after a run, or the result is not kept.

DVC takes hashes and values when a stage ends. So an input edited during the run would be recorded as if the
result had been computed from it.
"""

import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from polygrain.config.compose import read_params
from polygrain.config.graph import filled, items_of, value_of

log = logging.getLogger(__name__)
FINISHED = "POLYGRAIN_FINISHED"
"""Set by our DVC, which compares all inputs by its own hashes: the file with paths to remove afterwards."""
SMALL = 16 << 20
"""Paths up to this size in bytes are compared by content: a branch switched there and back has new times."""


class Reads(NamedTuple):
    """The dependencies of a stage: paths, and by file the full names of values.

    `own`: the paths that values name, which are the user's folders, of any number of files.
    """

    paths: list[str]
    values: dict[str, list[str]]
    own: list[str]


def read_by(folder: Path, address: str) -> Reads:
    """The inputs of a stage in the folder's dvc.yaml, by the address that DVC gives its command."""
    name, _, key = address.rpartition(":")[2].partition("@")
    body, known = read_params(folder / "dvc.yaml")["stages"][name], read_params(folder / "params.yaml")
    if "foreach" in body:
        items = items_of(body, known)
        known |= {"key": key, "item": items[key] if isinstance(items, dict) else key}
        body = body["do"]

    paths = {path: filled(path, known) for path in body.get("deps", [])}
    own = [paths[path] for path in paths if path.startswith("${") and not path.startswith("${root}")]
    reads = Reads([*paths.values()], {}, own)
    for entry in body.get("params", []):
        for file, names in entry.items() if isinstance(entry, dict) else [("params.yaml", [entry])]:
            reads.values.setdefault(filled(file, known), []).extend(filled(name, known) for name in names)
    return reads


def state(folder: Path, reads: Reads) -> dict[str, Any]:
    """Each path with a digest of its files, each full name with its value, or why it cannot be read."""
    result: dict[str, Any] = {path: digest(folder / path) for path in reads.paths}
    for file, names in reads.values.items():
        try:
            values = read_params(folder / file)
        except ValueError as error:  # half written, or away while branches are switched
            result |= dict.fromkeys(names, error)
        else:
            result |= {name: value_of(name, values) for name in names}
    return result


def digest(path: Path) -> str:
    """Of every file at or below the path: of its content where all of them are small, else of size and time.

    No inode: network mounts give other ones at each look.
    """
    found: list[tuple[Any, ...]] = []
    for file in files(path):
        with suppress(OSError):  # gone since it was listed
            info = os.stat(file)
            found.append((file, info.st_size, info.st_mtime_ns))
    if sum(size for _, size, _ in found) <= SMALL:
        found = [(known[0], content(*known)) for known in found]
    return hashlib.md5(repr(found).encode(), usedforsecurity=False).hexdigest()


@cache
def content(file: str, size: int, changed: int) -> str:
    """A digest of the file that has this size and time; empty if it is gone."""
    try:
        return hashlib.md5(Path(file).read_bytes(), usedforsecurity=False).hexdigest()
    except OSError:
        return ""


def files(path: Path) -> Iterator[str]:
    """Every file at or below the path but what .dvcignore names and a run writes: byte code, unfinished outputs."""
    if not path.is_dir():
        yield str(path)
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.endswith(".partial"))
        yield from (os.path.join(folder, name) for name in sorted(names) if not name.endswith(".partial"))


def require_loaded(folder: Path, paths: Iterable[str]) -> None:
    """ValueError for a source that has changed since this process started: which text it has loaded is not known."""
    start, now = psutil.Process().create_time(), time.time()
    if sys.platform == "linux":  # it tells the time of the boot, which psutil has added, to a second only
        start += now - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()
    for path in paths:
        for file in files(folder / path):
            # Later than now is what another clock wrote, which says nothing.
            if file.endswith(".py") and start <= os.stat(file).st_ctime <= now:
                raise ValueError(f"{path} changed while this stage started: run again")


def require_same(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """ValueError names what differs of two states."""
    if changed := [name for name in before if before[name] != after.get(name)]:
        raise ValueError(f"{', '.join(changed)} changed while this stage ran: run again")


class Watch:
    """Compares what a stage reads with what it was when this was made: the user's own folders, which our DVC compares
    where it is at work, at the end alone."""

    def __init__(self, folder: Path, reads: Reads) -> None:
        self._folder, self._told = folder, list[str]()
        self._own = Reads([] if FINISHED in os.environ else reads.own, {}, [])
        self._reads = reads._replace(paths=[path for path in reads.paths if path not in reads.own])
        self._before = state(folder, self._reads) | state(folder, self._own)
        require_loaded(folder, self._reads.paths)

    def look(self) -> None:
        """Says of each change once that it costs the result, unless it is undone."""
        now = state(self._folder, self._reads)
        changed = [name for name in now if now[name] != self._before[name]]
        if changed != self._told:
            said = f"{', '.join(changed)} changed while this stage runs: undo it, or its result will not be kept"
            log.warning("%s", said if changed else "the inputs are as before again: the result will be kept")
        self._told = changed

    def require_same(self) -> None:
        """ValueError names the changed inputs."""
        require_same(self._before, state(self._folder, self._reads) | state(self._folder, self._own))


watch = Watch(Path(), Reads([], {}, []))
"""Of the stage that this process runs."""
