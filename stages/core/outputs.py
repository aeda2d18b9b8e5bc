"""Outputs that are complete or absent."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder(output: Path) -> Iterator[Path]:
    """A fresh folder beside `output` that takes its place when the block ends well, and is removed when it does not.

    A process that is killed leaves `<output>.partial`, which DVC ignores (.dvcignore) and the next run removes.
    """
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            message = f"the disk is full; nothing was left at {output}: free some space and run again"
            raise OSError(errno.ENOSPC, message) from error
        raise
    shutil.rmtree(output, ignore_errors=True)
    os.replace(partial, output)
