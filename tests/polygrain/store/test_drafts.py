"""Files that are complete or as before, whatever writes them."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from polygrain.collection import file as embeddings
from polygrain.collection.vectors import smooth_file
from polygrain.store.drafts import drafted
from polygrain.store.tables import write_csv
from polygrain.training import checkpoint

ROWS = np.eye(512, dtype=np.float32)


@contextmanager
def full_disk(room: int = 2000) -> Iterator[None]:
    """No file grows beyond so many bytes: what is more ends in an OSError in the middle, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("pairs.csv", lambda file: write_csv(file, [("path", "other")] * 1000)),
        ("e.parquet", lambda file: embeddings.write(file, {"path": [""] * 512, "searched": ROWS})),
        ("s.npy", lambda file: smooth_file(file.with_name("in.npy"), file)),
        ("best.safetensors", lambda file: checkpoint.write(file, {"weight": torch.ones(5000)})),
    ],
)
def test_drafted__a_full_disk_leaves_every_file_as_it_was(tmp_path: Path, name: str, write) -> None:
    np.save(tmp_path / "in.npy", ROWS[:64])
    write(tmp_path / name)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with full_disk(), pytest.raises(OSError, match=r"File too large|requested and"):
        write(tmp_path / name)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_drafted__a_link_stays_one_and_a_pipe_is_written_itself(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.csv").symlink_to("there/real.csv")
    write_csv(tmp_path / "link.csv", [("a",)])
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "there/real.csv").read_text() == '"a"\n'
    with drafted(Path(os.devnull)) as draft:
        assert draft == Path(os.devnull)
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EXDEV])
def test_put__a_file_that_is_a_mount_is_written_itself(tmp_path: Path, monkeypatch, code: int) -> None:
    (tmp_path / "e.csv").write_text("longer than what comes")
    inode = (tmp_path / "e.csv").stat().st_ino
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError(code, "mount")))
    write_csv(tmp_path / "e.csv", [("a",)])
    assert (tmp_path / "e.csv").read_text() == '"a"\n' and (tmp_path / "e.csv").stat().st_ino == inode
    assert [file.name for file in tmp_path.iterdir()] == ["e.csv"]


def test_drafted__a_file_on_a_disk_that_is_read_only_is_refused_before_the_work(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "e.csv").touch(0o444)
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError))
    with drafted(tmp_path / "e.csv") as draft:
        draft.touch()  # it takes the place of one that may not be written
    monkeypatch.setattr(Path, "open", Mock(side_effect=OSError(errno.EROFS, "read-only")))
    with pytest.raises(OSError, match="read-only"), drafted(tmp_path / "e.csv"):
        pytest.fail("the work began")


def test_smooth_file__a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch) -> None:
    np.save(tmp_path / "in.npy", ROWS[:64])
    monkeypatch.setattr("polygrain.collection.vectors.read", Mock(side_effect=AssertionError))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/s.npy.draft").mkdir()
    with pytest.raises(OSError, match="directory"):
        smooth_file(tmp_path / "in.npy", tmp_path / "out/s.npy")
