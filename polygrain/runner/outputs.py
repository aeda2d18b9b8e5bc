"""Outputs that are complete or absent."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polygrain.compute import processes


@contextmanager
def folder(output: Path) -> Iterator[Path]:
    """A fresh folder beside `output` that takes its place when the block ends well, and is removed when it does not.

    A process that is killed leaves `<output>.partial`, which DVC ignores (.dvcignore) and the next run removes.
    Of several processes the first one writes; the output of the others is dropped.
    """
    if processes.rank():
        with tempfile.TemporaryDirectory() as dropped:
            yield Path(dropped)
        return
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(output, ignore_errors=True)
    os.replace(partial, output)
