"""Outputs that are complete or absent."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.core.compute import processes


@contextmanager
def folder(output: Path, shared: bool = False) -> Iterator[Path]:
    """A fresh folder beside `output` that takes its place when the block ends well, and is removed when it does not.

    A process that is killed leaves `<output>.partial`, which DVC ignores (.dvcignore) and the next run removes.
    Of several processes the first one writes; what the others write is dropped, unless the folder is `shared`.
    """
    if processes.rank() and not shared:
        with tempfile.TemporaryDirectory() as dropped:
            yield Path(dropped)
        return
    partial = output.with_name(output.name + ".partial")
    if processes.rank() == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    try:
        if shared:
            processes.wait()
        yield partial
        if shared:
            processes.wait()
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            message = f"the disk is full; nothing was left at {output}: free some space and run again"
            raise OSError(errno.ENOSPC, message) from error
        raise
    if processes.rank() == 0:
        shutil.rmtree(output, ignore_errors=True)
        os.replace(partial, output)
