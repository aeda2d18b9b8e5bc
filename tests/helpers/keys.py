"""Whether a stage's key of unfinished work changes with what it reads."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from polygrain.store import work
from polygrain.training import checkpoint


class Stopped(Exception):
    """Raised once the key is known."""


def change(file: Path) -> None:
    """Other bytes, which can be read as before."""
    if file.suffix == ".parquet":
        pq.write_table(pq.read_table(file), file, compression="none")
    else:
        file.write_text(file.read_text() + "\n")


def assert_key_follows(
    files: list[str], run: Callable, folders: Sequence[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the files changes the key alone; their paths start with the number of their folder."""
    copies = [Path(shutil.copytree(folder, tmp_path / str(number))) for number, folder in enumerate(folders)]
    keys = []

    def stop(*given: object) -> Path:
        keys.append(work.folder(*given))
        raise Stopped

    monkeypatch.setattr(checkpoint, "work_folder", stop)
    for file in [None, *files]:
        if file:
            change(tmp_path / file)
        with pytest.raises(Stopped):
            run(copies)
    assert len({*keys}) == len(files) + 1
