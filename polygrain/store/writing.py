"""What a full disk means to whoever writes: one sentence that says what was left, and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

# The disk, the user's share of it, and the size that a file may have.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFull(OSError):
    """The disk takes no more; the message says what was left."""

    def __str__(self) -> str:
        return self.strerror


@contextmanager
def writing(left: str) -> Iterator[None]:
    """A block that writes; where the disk is full in it, DiskFull says so and what is `left` by then."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or isinstance(error, DiskFull):
            raise
        where = f": {error.filename}" if error.filename else ""
        said = f"the disk is full ({error.strerror}{where}); {left}: free some space and run again"
        raise DiskFull(error.errno, said) from error
