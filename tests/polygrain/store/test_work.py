import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polygrain.store import imports, work


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def read(tmp_path):
    """A folder with a model and a task's images."""
    (tmp_path / "read/pixels.zarr/c").mkdir(parents=True)
    for name in ("config.json", "weights.safetensors", "table.parquet", "pixels.zarr/c/0"):
        (tmp_path / "read" / name).write_bytes(b"before")
    return tmp_path / "read"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the sources, for changes."""
    for name in ("stages", "polygrain"):
        shutil.copytree(imports.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(imports.ROOT / "versions.yaml", tmp_path)
    monkeypatch.setattr(imports, "ROOT", tmp_path)
    return tmp_path


def test_folder__depends_on_values_and_their_order():
    folders = {work.folder("tll_pairs", "k4", values, []) for values in (["a"], ["b"], ["a", "b"], ["b", "a"])}
    assert len(folders) == 4 and {folder.parent for folder in folders} == {work.WORK / "tll_pairs/k4"}
    assert work.folder("tll_pairs", "k4", ["a"], []) in folders


@pytest.mark.parametrize("name", ["config.json", "pixels.zarr/c/0"])
def test_folder__depends_on_each_file_that_is_read(read, name):
    before = work.folder("tll_pairs", "k4", [], [read])
    assert work.folder("tll_pairs", "k4", [], [read]) == before
    (read / name).write_bytes(b"behind")  # of the same size
    assert work.folder("tll_pairs", "k4", [], [read]) != before


def test_folder__does_not_depend_on_where_it_is_read(read, tmp_path):
    before = work.folder("tll_pairs", "k4", [], [read])
    assert work.folder("tll_pairs", "k4", [], [read.rename(tmp_path / "moved")]) == before


def test_folder__names_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="nothing is missing or empty"):
        work.folder("tll_pairs", "k4", [], [tmp_path / "nothing"])


@pytest.mark.parametrize(
    ("file", "is_other"),
    [
        ("stages/adaptor.py", True),
        ("polygrain/training/loop.py", True),
        ("versions.yaml", True),
        ("polygrain/mpcl/probe.py", False),
        ("stages/fusion.py", False),
    ],
)
def test_folder__depends_on_the_sources_of_its_stage_alone(project, file, is_other):
    before = work.folder("adaptor", "k4", [], [])
    with (project / file).open("a") as stream:
        stream.write("pytest: 0\n" if file == "versions.yaml" else "# edited\n")
    assert (work.folder("adaptor", "k4", [], []) != before) == is_other


def test_folder__is_the_same_in_a_fresh_process():
    program = "from polygrain.store import work; print(work.folder('tll_pairs', 'k4', [1], []))"
    variables = os.environ | {"PYTHONPATH": str(imports.ROOT)}
    fresh = subprocess.run([sys.executable, "-c", program], env=variables, check=True, capture_output=True, text=True)
    assert fresh.stdout.strip() == str(work.folder("tll_pairs", "k4", [1], []))


def test_folder__keeps_the_newest_keys_of_an_item():
    folders = [work.folder("tll_pairs", "k4", [number], []) for number in range(4)]
    for second, folder in enumerate(folders):
        folder.mkdir(parents=True)
        os.utime(folder, (second, second))
    other = Path(".work/tll_pairs/k8/key")
    other.mkdir(parents=True)
    assert work.folder("tll_pairs", "k4", [0], []) == folders[0]  # a return to the oldest
    assert {folder for folder in folders if folder.exists()} == {folders[0], folders[2], folders[3]} and other.exists()
