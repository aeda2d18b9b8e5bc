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


def saved(folder):
    run = new_run()
    advance(*run, 3)
    checkpoint.save(folder, *run, [{"epoch": 1, "loss": 1 / 3}])
    return run


def test_resume__brings_back_module_optimizer_and_history(tmp_path):
    assert checkpoint.resume(tmp_path, *new_run()) == []
    first, second = saved(tmp_path), new_run()
    (tmp_path / "checkpoint.safetensors.draft").write_bytes(b"half")  # what a kill while writing leaves
    assert checkpoint.resume(tmp_path, *second) == [{"epoch": 1, "loss": 1 / 3}]
    for run in (first, second):
        advance(*run, 2)
    for name, tensor in first[0].state_dict().items():
        assert torch.equal(tensor, second[0].state_dict()[name]), name


@pytest.mark.parametrize("content", [lambda whole: whole[:200], lambda whole: b"PK\x03\x04 nonsense"])
def test_resume__a_damaged_checkpoint_is_named_and_removed(tmp_path, content, caplog):
    saved(tmp_path / "key")
    file = tmp_path / "key/checkpoint.safetensors"
    file.write_bytes(content(file.read_bytes()))
    assert checkpoint.resume(tmp_path / "key", *new_run()) == []
    assert "checkpoint.safetensors is damaged" in caplog.text and not (tmp_path / "key").exists()


def test_load_best__is_what_was_stored_last(tmp_path):
    module, optimizer = new_run()
    checkpoint.save_best(tmp_path, module)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    advance(module, optimizer, 2)
    checkpoint.load_best(tmp_path, module)
    assert all(torch.equal(tensor, start[name]) for name, tensor in module.state_dict().items())
    checkpoint.clear(tmp_path)
    assert not tmp_path.exists()
