"""The scripts of examples/, run as they stand."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.helpers.project import copy_project
from tests.test_docs_blocks import draw, write_vectors

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, capsys, tmp_path_factory):
    """Runs a script with these words; the lines that it prints."""

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))

    def run(script: str, *words: str | Path) -> list[str]:
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_search_photographs__the_query_itself_is_first(run, tmp_path):
    draw(tmp_path)
    query = tmp_path / "class1/3.jpg"
    (tmp_path / "class1/2.jpg").write_bytes(query.read_bytes()[:-900])
    found = run("search_photographs.py", tmp_path, query)
    assert len(found) == 10 and found[0].endswith(str(query))


def test_smooth_vectors__rows_of_a_group_find_each_other(run, tmp_path):
    write_vectors(tmp_path / "clip.npy")
    lines = run("smooth_vectors.py", tmp_path / "clip.npy", "20")
    assert len(lines) == 5
    for line in lines:
        others = [int(word) for word in line.partition("rows ")[2].split(", ")]
        assert all(other < 20 for other in others), line


@pytest.mark.slow
def test_own_encoder__is_fitted_and_exported(tmp_path):
    here = tmp_path / "here"
    copy_project(here)
    draw(tmp_path / "photographs")
    torch.manual_seed(0)
    save_file(timm.create_model("test_efficientnet", num_classes=0).state_dict(), tmp_path / "own.safetensors")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/polygrain"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m polygrain "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    words = [tmp_path / "photographs", tmp_path / "own.safetensors", "test_efficientnet", "48"]
    done = subprocess.run([here / "examples/own_encoder.sh", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(file.suffix == ".onnx" for file in (here / "exported").iterdir())
