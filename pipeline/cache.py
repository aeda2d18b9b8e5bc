"""The cache of this clone, and whether its objects still have the bytes that name them.

DVC makes cached files read-only and believes, unread, every one that is. A write to such a file, or to a workspace file
that is a hard link to it, leaves it read-only: `dvc repro` would hand the damage out as the recorded result.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dvc_data.hashfile.db import HashFileDB
from dvc_objects.errors import ObjectFormatError

from pipeline import graph, tree


def holds(cache: HashFileDB, digest: str) -> bool:
    """Whether an object is there with its bytes; one with others is removed. Read again only where its time is new."""
    try:
        HashFileDB.check(cache, digest)
    except (FileNotFoundError, ObjectFormatError):
        return False
    return True


def recorded(stages: Iterable[Any], folder: Path, names: set[str] | None = None) -> dict[str, str]:
    """{object: output} of what dvc.lock records of these stages, of all in the folder's dvc.yaml without names."""
    if names is None:
        meant = [stage for stage in stages if Path(stage.path).parent.resolve() == folder.resolve()]
    else:
        meant = [stage for stage in stages if graph.name_of(stage, folder) in names]
    outs = [out for stage in meant for out in stage.outs if out.use_cache and out.hash_info]
    return {out.hash_info.value: str(out) for out in outs}


def listed(file: Path, name: str, wrong: list[str]) -> dict[str, str]:
    """What a list of files names; nothing if it leads out of its output, and then the list is gone."""
    try:
        return tree.read(file.read_bytes())
    except ValueError as error:
        wrong.append(f"{name}: its list of files {error}")
        file.unlink()
        return {}


def damaged(folder: Path) -> list[str]:
    """Takes out of the cache what has other bytes than were recorded, and names what it belonged to."""
    found: list[str] = []
    with graph.opened(folder) as repo:
        cache = repo.cache.local

        def look(digest: str, name: str) -> bool:
            is_there = cache.exists(digest)
            if is_there and not holds(cache, digest):
                found.append(name)
            return cache.exists(digest)

        for digest, name in recorded(repo.index.stages, folder).items():
            if look(digest, name) and digest.endswith(".dir"):
                for path, file in listed(Path(cache.oid_to_path(digest)), name, found).items():
                    look(file, f"{name}/{path}")
    return found


def mend(folder: Path) -> None:
    """`damaged`, with a line on standard error that says what was taken out."""
    if found := damaged(folder):
        names = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        sys.stderr.write(f"damaged in the cache, so taken out and made again where it is needed: {names}\n")
