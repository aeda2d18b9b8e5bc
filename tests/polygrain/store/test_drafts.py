"""Files that are complete or as before, whatever writes them."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from polygrain.app.vectors import smooth_file
from polygrain.cli.main import app
from polygrain.config import compose, remotes
from polygrain.sources.streams import place
from polygrain.store import embeddings
from polygrain.store.drafts import drafted
from polygrain.store.tables import write_csv
from polygrain.training import checkpoint

ROWS = np.eye(512, dtype=np.float32)
COLUMNS = {"path": [f"{row}.png" for row in range(512)], "embedding": ROWS}


@contextmanager
def full_disk(room: int = 2000) -> Iterator[None]:
    """No file grows beyond so many bytes: what is more ends in an OSError in the middle, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def smoothed(file: Path) -> None:
    source = file.parent / "in.npy"
    if not source.exists():
        np.save(source, ROWS)
    smooth_file(source, file)


def annotated(file: Path) -> None:
    if not file.exists():
        embeddings.write(file, COLUMNS)
    embeddings.annotate(file, {"comparison": "{}"})


def listed(file: Path) -> None:
    """A listing of an object store, renewed, of a task of the profile beside it."""
    if not file.exists():
        file.write_text('{"root": "s3://bucket"}')
        (file.parent / "params.yaml").write_text(f"tasks: {{far: {{source: remote, path: {file.name}}}}}\n")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "remote", lambda url: url)
        patch.setattr(place, "address_in", lambda file: "s3://bucket")
        patch.setattr(place, "text_of", lambda url: '{"files": "' + 5000 * "x" + '"}')
        remotes.renew(file.parent)


def composed(file: Path) -> None:
    profile, values = file.parent, file.parent / "values.yaml"
    (profile.parent.parent / "params.yaml").write_text("report: {page: 1}\n")
    values.write_text("report: {page: " + ("2" if not file.exists() else 5000 * "3") + "}\n")
    compose.renew(profile)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("pairs.csv", lambda file: write_csv(file, [("path", "other")] * 1000)),
        ("e.parquet", lambda file: embeddings.write(file, COLUMNS)),
        ("e.parquet", annotated),
        ("s.npy", smoothed),
        ("s.parquet", smoothed),
        ("best.safetensors", lambda file: checkpoint.write(file, {"weight": torch.ones(5000)})),
        ("far.json", listed),
        ("params.yaml", composed),
    ],
)
def test_drafted__a_full_disk_leaves_every_file_as_it_was(tmp_path: Path, name: str, write) -> None:
    folder = tmp_path / "profiles/mine"
    folder.mkdir(parents=True)
    write(folder / name)
    before = {file: file.read_bytes() for file in folder.iterdir() if file.name != "values.yaml"}
    with full_disk(), pytest.raises(OSError, match=r"File too large|requested and"):
        write(folder / name)
    assert {file: file.read_bytes() for file in folder.iterdir() if file.name != "values.yaml"} == before
    (folder / name).unlink()


def test_drafted__a_link_stays_one_and_a_pipe_is_written_itself(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.csv").symlink_to("there/real.csv")
    write_csv(tmp_path / "link.csv", [("a",)])
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "there/real.csv").read_text() == '"a"\n'
    with drafted(Path(os.devnull)) as draft:
        assert draft == Path(os.devnull)
    assert Path(os.devnull).is_char_device()


def test_init__a_full_disk_leaves_no_half_project(tmp_path: Path) -> None:
    with full_disk(20_000):
        done = CliRunner().invoke(app, ["init", str(tmp_path / "mine")])
    assert isinstance(done.exception, OSError) and not (tmp_path / "mine").exists()
