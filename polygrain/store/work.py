"""Unfinished work of a stage, in `.work/<stage>/<item>/<key>/`, outside DVC.

The key is a digest of everything that the run depends on: values, inputs, sources and versions. So a run never
continues from the state of another one, a return to old values finds the old state, and it does not matter how the
process was started.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from polygrain.store import imports

WORK = Path(".work")
TAKEN: list[Path] = []  # by this process
KEPT = 3  # keys of an item: a return to old values finds its state, and `.work` does not grow for ever


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder(stage: str, item: str, values: Iterable[object], reads: Iterable[Path]) -> Path:
    """The folder for a run of an item with these values, which reads these files and folders; old ones are removed.

    ValueError for one that is missing or empty.
    """
    inputs = [content(place) for place in reads]
    key = hashlib.sha256(
        json.dumps([[*map(str, values)], inputs, content_of(imports.sources(stage)), versions()]).encode()
    )
    found = WORK / stage / item / key.hexdigest()[:16]
    prune(found)
    TAKEN.append(found)
    return found


def clear() -> None:
    """Removes the folders that this process has taken, once its result is kept."""
    while TAKEN:
        shutil.rmtree(TAKEN.pop(), ignore_errors=True)


def prune(present: Path) -> None:
    """Removes the folders of other keys of the same item, but for the newest."""
    others = [place for place in present.parent.glob("*") if place != present]
    with suppress(FileNotFoundError):  # another process of this run may be ahead
        for place in sorted(others, key=lambda place: place.stat().st_mtime, reverse=True)[KEPT - 1 :]:
            shutil.rmtree(place, ignore_errors=True)


def content(place: Path) -> list[list[str]]:
    """The name within the place and the SHA-256 of each of its files."""
    files = {"": place} if place.is_file() else {file.relative_to(place).as_posix(): file for file in place.rglob("*")}
    files = {name: file for name, file in files.items() if file.is_file()}
    if not files:
        raise ValueError(f"{place} is missing or empty: run the pipeline again")
    return content_of(files)


def content_of(files: dict[str, Path]) -> list[list[str]]:
    """Each name with the SHA-256 of its file, sorted by name."""
    names = sorted(files)
    # All bytes: pixels may change where sizes do not, and several threads hash some GB in a second.
    with ThreadPoolExecutor() as pool:
        return [list(pair) for pair in zip(names, pool.map(digest, map(files.get, names)), strict=True)]


def versions() -> dict[str, str]:
    """The installed versions of the libraries that versions.yaml names."""
    lines = (imports.ROOT / "versions.yaml").read_text(encoding="utf-8").splitlines()
    installed = {}
    for name in [line.partition(":")[0] for line in lines if not line.startswith("#")]:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # another build of it, such as faiss-gpu
            installed[name] = ""
    return installed
