import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from polygrain.encoder.weights import fit_tensors, load_module, load_weights


def test_load_weights__fills_the_module(tmp_path):
    given, module = nn.Linear(3, 2), nn.ModuleDict({"inner": nn.Linear(3, 2)})
    save_file(given.state_dict(), tmp_path / "w.safetensors")
    load_weights(module, tmp_path / "w.safetensors", "inner.")
    assert torch.equal(module["inner"].weight, given.weight) and torch.equal(module["inner"].bias, given.bias)


def test_load_weights__names_a_missing_or_damaged_file(tmp_path):
    file = tmp_path / "w.safetensors"
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged"):
        load_weights(nn.Linear(3, 2), file)
    save_file(nn.Linear(3, 2).state_dict(), file)
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged"):
        load_weights(nn.Linear(3, 2), file)


def test_fit_tensors__says_what_is_missing_left_over_or_of_another_shape():
    module = nn.Linear(3, 2)
    before = module.weight.clone()
    with pytest.raises(
        ValueError, match=r"origin does not fit the encoder: missing bias; unknown other; weight is \(2, 4\)"
    ):
        fit_tensors(module, {"weight": torch.ones(2, 4), "other": torch.ones(1)}, "origin")
    assert torch.equal(module.weight, before)
    many = {f"t{i}": torch.ones(1) for i in range(9)}
    with pytest.raises(ValueError, match="and 6 more"):
        fit_tensors(module, many, "origin")


def test_load_module__builds_nothing_before_the_header_fits(tmp_path):
    save_file(nn.Linear(3, 2).state_dict(), tmp_path / "weights.safetensors")
    built = []

    def make(size):
        built.append(torch.empty(0).device.type)
        return nn.Linear(size, 2)

    assert load_module(lambda: make(3), tmp_path).weight.device.type == "cpu"
    assert built == ["meta", "cpu"]
    with pytest.raises(ValueError, match=r"weights.safetensors does not fit the encoder: weight is \(2, 3\)"):
        load_module(lambda: make(10**12), tmp_path)  # eight terabytes
    assert built == ["meta", "cpu", "meta"]
    with pytest.raises(ValueError, match=r"config.json describes no model \(.*negative"):
        load_module(lambda: make(-1), tmp_path)
