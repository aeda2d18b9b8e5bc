"""A file that someone else may have put there: whether it is one to open at all, and its text.

A pipe holds its reader up for ever, a device never ends, and a link may lead to what is none of the reader's business.
"""

import os
import re
import stat
from pathlib import Path

MOST_BYTES = 2**20  # 20 times the largest text that is kept here, a composed params.yaml


def require_plain(file: Path) -> None:
    """ValueError for anything but a plain file; a link counts as one where it leads to an object of DVC's cache."""
    if file.is_symlink() and not re.search(r"/files/md5/[0-9a-f]{2}/[0-9a-f]{30}$", os.path.realpath(file)):
        raise ValueError("it is a link, which is followed into DVC's cache only: put the file itself there")
    require_regular(file.stat().st_mode)


def require_regular(mode: int) -> None:
    """ValueError for the mode of a folder, a pipe, a socket or a device."""
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        raise ValueError(f"it is a {kinds.get(stat.S_IFMT(mode), 'device')}, no plain file")


def read_text(file: Path, most: int = MOST_BYTES) -> str:
    """The text of a plain file, or of one that a link leads to; ValueError says what it is instead of short UTF-8."""
    require_regular(os.stat(file).st_mode)
    # Looked at once more when it is open, and opened without waiting: a pipe may have taken the file's place.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        require_regular(os.fstat(descriptor).st_mode)
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than the {most:,} bytes that are read of such a file")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8") from error
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark: save it as UTF-8 without one")
    if "\0" in text:
        raise ValueError("it has a NUL character in it, so it is no text: save it as UTF-8")
    return text
