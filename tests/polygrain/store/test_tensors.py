import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from polygrain.store.tensors import read_tensors, write_tensors, write_weights


def test_write_weights__gives_all_back_and_the_same_bytes_in_any_order(tmp_path):
    first = nn.ModuleDict({"a": nn.Linear(3, 2).half(), "b": nn.BatchNorm1d(2)})
    second = nn.ModuleDict({"b": first["b"], "a": first["a"]})
    write_weights(first, tmp_path / "first.safetensors")
    write_weights(second, tmp_path / "second.safetensors")
    assert (tmp_path / "first.safetensors").read_bytes() == (tmp_path / "second.safetensors").read_bytes()
    tensors = read_tensors(tmp_path / "first.safetensors")
    assert tensors.keys() == first.state_dict().keys() and tensors["a.weight"].dtype == torch.float16
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in first.state_dict().items())


def test_write_tensors__with_gradients_and_strides(tmp_path):
    write_tensors({"a": torch.ones(2, 3, requires_grad=True).T}, tmp_path / "w.safetensors")
    assert torch.equal(read_tensors(tmp_path / "w.safetensors")["a"], torch.ones(3, 2))


def test_write_tensors__may_be_read_by_whom_other_files_may(tmp_path):
    (tmp_path / "other").touch()
    write_tensors({"a": torch.ones(1)}, tmp_path / "w.safetensors")
    assert (tmp_path / "w.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_read_tensors__names_a_damaged_file_and_the_remedy(tmp_path):
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged .*; delete .* and run the pipeline"):
        read_tensors(file)
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged .*; give another$"):
        read_tensors(file, "give another")


@pytest.mark.parametrize(("value", "dtype"), [(float("nan"), torch.float32), (-float("inf"), torch.bfloat16)])
def test_read_tensors__refuses_what_is_not_finite(tmp_path, value, dtype):
    save_file({"a": torch.tensor([1.0, value]).to(dtype)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="1 of 2 values of a are NaN or infinite"):
        read_tensors(tmp_path / "w.safetensors")
