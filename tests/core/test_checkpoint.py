import pytest
import torch
from torch import nn

from stages.core import checkpoint


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


@pytest.mark.parametrize("damage", ["flip", "cut", "foreign"])
def test_resume__names_a_damaged_checkpoint(tmp_path, damage):
    run = new_run()
    advance(*run, 1)
    checkpoint.save(tmp_path, *run, [{"epoch": 1, "loss": 1.0}])
    file = tmp_path / "checkpoint.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
    file.write_bytes({"flip": bytes(content), "cut": bytes(content[:200]), "foreign": b"PK\x03\x04 nonsense"}[damage])
    with pytest.raises(ValueError, match=r"checkpoint.safetensors is damaged .*delete .* to start this stage again"):
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
