import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from polygrain.training import checkpoint


def new_run():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    return module, torch.optim.Adam(module.parameters(), 0.1)


def advance(module, optimizer, steps):
    for i in range(steps):
        loss = module(torch.randn(8, 4, generator=torch.Generator().manual_seed(i))).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_resume__brings_back_module_optimizer_and_history(tmp_path):
    first = new_run()
    advance(*first, 3)
    checkpoint.save(tmp_path, *first, [{"epoch": 1, "loss": 1 / 3}])
    second = new_run()
    assert checkpoint.resume(tmp_path, *second) == [{"epoch": 1, "loss": 1 / 3}]
    for run in (first, second):
        advance(*run, 2)
    for name, tensor in first[0].state_dict().items():
        assert torch.equal(tensor, second[0].state_dict()[name]), name


def test_resume__a_first_start_has_no_history(tmp_path):
    assert checkpoint.resume(tmp_path / "nothing", *new_run()) == []


@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_resume__names_a_damaged_checkpoint(tmp_path, damage):
    run = new_run()
    advance(*run, 1)
    checkpoint.save(tmp_path, *run, [{"epoch": 1, "loss": 1.0}])
    file = tmp_path / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:200] if damage == "cut" else b"PK\x03\x04 nonsense")
    with pytest.raises(ValueError, match=r"checkpoint.safetensors is missing or damaged .*delete .* to start"):
        checkpoint.resume(tmp_path, *new_run())


def test_save__a_leftover_of_a_killed_write_does_no_harm(tmp_path):
    run = new_run()
    advance(*run, 1)
    checkpoint.save(tmp_path, *run, [{"epoch": 1, "loss": 1.0}])
    (tmp_path / "checkpoint.new").write_bytes(b"half")
    assert len(checkpoint.resume(tmp_path, *new_run())) == 1
    checkpoint.save(tmp_path, *run, [{"epoch": 1, "loss": 1.0}] * 2)
    assert len(checkpoint.resume(tmp_path, *new_run())) == 2


def test_work_folder__depends_on_every_input():
    inputs = [("k4", 1, "a"), ("k4", 2, "a"), ("k4", 1, "b"), ("k8", 1, "a"), ("k4", 1, "a")]
    assert len({checkpoint.work_folder("adaptor", *values) for values in inputs}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkout", "runner", "stages"])
def test_work_folder__another_code_is_another_run_whatever_the_project_lies_in(tmp_path, name):
    """A folder called `runner` above the project once left every source out of the key."""
    project = tmp_path / name / "polygrain"
    sources = Path(checkpoint.__file__).parents[2]
    shutil.copytree(sources / "polygrain", project / "polygrain", ignore=shutil.ignore_patterns("__pycache__"))
    asked = "from polygrain.training import checkpoint; print(checkpoint.work_folder('adaptor', 1))"

    def key() -> str:
        environment = os.environ | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", asked]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    first = key()
    assert first.startswith(".work/adaptor/") and key() == first
    with (project / "polygrain/runner/__init__.py").open("a") as file:
        file.write("# how a stage is run\n")
    assert key() == first
    with (project / "polygrain/training/checkpoint.py").open("a") as file:
        file.write("# other code\n")
    assert key() != first
