"""A folder that is this user's alone: made, or refused where someone else may have had a hand in it."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def own(folder: Path) -> Path:
    """The folder, which nobody else can enter; ValueError if it is no folder, another user's, or open to writers."""
    with suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    require_own(folder, stat.S_ISDIR, "folder")
    folder.chmod(0o700)
    return folder


def require_own(path: Path, is_kind: object, kind: str) -> None:
    """ValueError unless the path itself, and nothing it points to, is of this kind and for this user alone to write."""
    found = path.lstat()
    if not is_kind(found.st_mode):
        raise ValueError(f"{path} is {'a link' if path.is_symlink() else f'no {kind}'}: delete it, and it is made anew")
    if found.st_uid != os.getuid():
        raise ValueError(
            f"{path} belongs to user {found.st_uid}, not to you ({os.getuid()}): have it deleted, and it is made anew"
        )
    if found.st_mode & 0o022:
        raise ValueError(
            f"others may write to {path} (mode {stat.S_IMODE(found.st_mode):o}): look what they left there, "
            f"then `chmod go-w {path}`"
        )
