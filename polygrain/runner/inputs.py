"""What a stage reads, as it stands: the same before and after a run, or the result is not kept.

DVC takes hashes and values when a stage ends. So what changes meanwhile would be recorded as computed.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from polygrain.config.compose import read_params
from polygrain.config.graph import filled, items_of, value_of


class Reads(NamedTuple):
    """What a stage depends on: paths, and by file the full names of values."""

    paths: list[str]
    values: dict[str, list[str]]


def read_by(folder: Path, address: str) -> Reads:
    """What dvc.yaml in the folder says of a stage, by the address that DVC gives its command."""
    name, _, key = address.rpartition(":")[2].partition("@")
    body, known = read_params(folder / "dvc.yaml")["stages"][name], read_params(folder / "params.yaml")
    if "foreach" in body:
        items = items_of(body, known)
        known |= {"key": key, "item": items[key] if isinstance(items, dict) else key}
        body = body["do"]

    reads = Reads([filled(path, known) for path in body.get("deps", [])], {})
    for entry in body.get("params", []):
        for file, names in entry.items() if isinstance(entry, dict) else [("params.yaml", [entry])]:
            reads.values.setdefault(filled(file, known), []).extend(filled(name, known) for name in names)
    return reads


def state(folder: Path, reads: Reads) -> dict[str, Any]:
    """Each path with a digest of its files, each full name with its value."""
    result: dict[str, Any] = {path: digest(folder / path) for path in reads.paths}
    for file, names in reads.values.items():
        values = read_params(folder / file)
        result |= {name: value_of(name, values) for name in names}
    return result


def digest(path: Path) -> str:
    """Of size, time and inode of every file at or below the path."""
    result = hashlib.md5(usedforsecurity=False)
    for file in files(path):
        try:
            info = os.stat(file)
        except OSError:  # gone since it was listed
            continue
        result.update(repr((file, info.st_size, info.st_mtime_ns, info.st_ino)).encode())
    return result.hexdigest()


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
    for path in paths:
        for file in files(folder / path):
            # Later than now is what another clock wrote, which says nothing.
            if file.endswith(".py") and start < os.stat(file).st_ctime <= now:
                raise ValueError(f"{path} changed while this stage started: run again")


def require_same(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """ValueError names what differs of two states."""
    if changed := [name for name in before if before[name] != after.get(name)]:
        raise ValueError(f"{', '.join(changed)} changed while this stage ran: run again")
