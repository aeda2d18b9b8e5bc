import os
import subprocess
import sys
from pathlib import Path

import pytest

from polygrain.config.compose import read_params
from tests.pipeline.test_prepare import write

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def values():
    return read_params(ROOT / "params.yaml")


def test_params__have_no_key_that_the_run_cache_ignores(values):
    """DVC leaves `size` and `nfiles` out of account, and would take an old result for a new one."""

    def keys(value):
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return {key for name, item in items for key in {name, *keys(item)}}

    assert not keys(values) & {"size", "nfiles"}


WRITES = 'output.write_text(f"{name} {seed} {params.epochs} {dtype}")'
STAGE = f"""
from pathlib import Path
from pydantic import Field
from polygrain.config.schema import Section
from polygrain.runner import command

class Params(Section):
    epochs: int = Field(ge=1)

def main(output: Path, *, name: str, seed: int, params: Params, dtype: str) -> str:
    {WRITES}
    return "written"

if __name__ == "__main__":
    command.run(main, Params, dtype="features.dtype")
"""


def run(folder, *words, body=WRITES):
    (folder / "toy.py").write_text(STAGE.replace(WRITES, body))
    command = [sys.executable, "toy.py", "out", *words]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


def test_run__paths_may_be_fields_of_a_tuple(tmp_path, values):
    write(tmp_path, values | {"toy": {"epochs": 3}})
    group = "class Reads(NamedTuple):\n    first: Path\n    output: Path\n\ndef main(reads: Reads, *,"
    stage = "from typing import NamedTuple\n" + STAGE.replace("def main(output: Path, *,", group)
    (tmp_path / "toy.py").write_text(stage.replace(WRITES, "reads.output.write_text(str(reads.first))"))
    command = [sys.executable, "toy.py", "in", "out", "--name", "one"]
    subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True)
    assert (tmp_path / "out").read_text() == "in"


def test_run__a_stage_gets_its_own_values_and_those_it_borrows(tmp_path, values):
    write(tmp_path, values | {"toy": {"epochs": 3}})
    done = run(tmp_path, "--name", "one")
    assert done.returncode == 0 and done.stderr.splitlines()[-1].startswith("toy@one: written (")
    assert (tmp_path / "out").read_text() == "one 0 3 float16"


def test_run__two_builds_of_faiss(tmp_path, values, monkeypatch):
    (tmp_path / "faiss_gpu-9.dist-info").mkdir()
    (tmp_path / "faiss_gpu-9.dist-info/METADATA").write_text("Name: faiss-gpu\nVersion: 9\n")
    write(tmp_path, values | {"toy": {"epochs": 3}})
    done = run(tmp_path, "--name", "one")
    assert done.returncode == 1 and "uninstall -y faiss-cpu faiss-gpu" in done.stderr


def test_run__a_full_gpu_gets_a_sentence(tmp_path, values):
    write(tmp_path, values | {"toy": {"epochs": 3}})
    full = 'raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried 2 GiB.\\nMore")'
    done = run(tmp_path, "--name", "one", body=full)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "Tried 2 GiB" in done.stderr and "POLYGRAIN_BATCH" in done.stderr and "batch of toy" in done.stderr


def test_run__a_wrong_value_ends_with_its_name_and_no_work(tmp_path, values):
    write(tmp_path, values | {"toy": {"epochs": 0}})
    done = run(tmp_path, "--name", "one")
    assert done.returncode == 1 and "toy.epochs" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
