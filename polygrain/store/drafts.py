"""Files that are complete or as before."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def drafted(file: Path) -> Iterator[Path]:
    """A file to write beside `file`, whose place it takes when the block ends well; else it is removed.

    What is no plain file, such as /dev/stdout, is written itself.
    """
    if file.exists() and not file.is_file():
        yield file
        return
    require_writable(file)
    target = Path(os.path.realpath(file))  # a link stays one
    draft = target.with_name(f"{target.name}.draft")
    try:
        yield draft
        put(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def require_writable(file: Path) -> None:
    """OSError where a file is a mount of its own that may not be written; without a right to write, it is replaced."""
    if file.is_file():
        with suppress(PermissionError):
            file.open("ab").close()


def put(draft: Path, file: Path) -> None:
    """Moves a draft to its place; a link stays one, and a file that is a mount of its own is written itself."""
    target = os.path.realpath(file)
    try:
        os.replace(draft, target)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        shutil.copyfile(draft, target)
        draft.unlink()
