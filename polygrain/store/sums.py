"""What the files of an output were when it was written: a list `SHA256SUMS` in every folder that holds some.

`reading` compares a file with it; `sha256sum --check SHA256SUMS` does the same by hand. Shards of a stored array are
left to the checksums in its zarr.json, which is listed. A folder without a list is a user's own, and taken as it is.
"""

import hashlib
import os
import re
from pathlib import Path

NAME = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write(root: Path) -> None:
    """Lists the files of `root` and of every folder below it."""
    for place, folders, names in os.walk(root):
        stored = [f"{name}/zarr.json" for name in folders if name.endswith(".zarr")]
        folders[:] = [name for name in folders if not name.endswith(".zarr")]
        lines = [f"{digest(Path(place, name))}  {name}\n" for name in sorted(names + stored)]
        if lines:
            Path(place, NAME).write_text("".join(lines), encoding="utf-8")


def listed(folder: Path) -> dict[str, str] | None:
    """The digests by name, None where there is no list; ValueError where the list is damaged."""
    file = folder / NAME
    if not file.exists():
        return None
    lines = file.read_bytes().decode("utf-8", "replace").splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    if not all(found) or not found:
        raise ValueError(f"{file}, which lists its checksum, is damaged")
    return {line[2]: line[1] for line in found}


def require(file: Path) -> None:
    """ValueError where the file, or a stored array's zarr.json, is another than the list of its folder says."""
    known = listed(file.parent)
    if known is None:
        return
    name = f"{file.name}/zarr.json" if file.suffix == ".zarr" else file.name
    if digest(file.parent / name) != known.get(name):
        listing = file.parent / NAME
        raise ValueError(f"its checksum is not the one in {listing}; delete that list if you changed it yourself")


def expects(file: Path) -> bool:
    """Whether there is such a file, or was when its folder was written: one that got lost must not pass for none."""
    known = listed(file.parent) or {}
    return file.exists() or any(name in known for name in (file.name, f"{file.name}/zarr.json"))
