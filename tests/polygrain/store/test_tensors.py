import errno

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from polygrain.store.tensors import read_tensors, settled, write_tensors, write_weights


def test_write_weights__gives_all_back_and_the_same_bytes_in_any_order(tmp_path):
    first = nn.ModuleDict({"a": nn.Linear(3, 2).half(), "b": nn.BatchNorm1d(2)})
    second = nn.ModuleDict({"b": first["b"], "a": first["a"]})
    write_weights(first, tmp_path / "first.safetensors")
    write_weights(second, tmp_path / "second.safetensors")
    assert (tmp_path / "first.safetensors").read_bytes() == (tmp_path / "second.safetensors").read_bytes()
    found = read_tensors(tmp_path / "first.safetensors")
    assert found.keys() == first.state_dict().keys() and found["a.weight"].dtype == torch.float16
    assert all(torch.equal(tensor, found[name]) for name, tensor in first.state_dict().items())


def test_settled__no_gradient_and_no_strides():
    kept = settled({"a": torch.ones(2, 3, requires_grad=True).T})["a"]
    assert not kept.requires_grad and kept.is_contiguous() and kept.shape == (3, 2)


def test_read_tensors__names_a_damaged_file_and_the_remedy(tmp_path):
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged .*; delete .* and run the pipeline"):
        read_tensors(file)
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged .*; give another$"):
        read_tensors(file, "give another")


def write(folder, **changes):
    """A file with its checksum, and its tensors under other names, shapes, types or values."""
    file = folder / "w.safetensors"
    write_tensors({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(3)} | changes, file, {"history": "[1, 2]"})
    return file


def test_write_tensors__safetensors_reads_it_and_two_runs_write_the_same_bytes(tmp_path):
    assert load_file(write(tmp_path))["a"].shape == (2, 3)
    # More metadata, which only checkpoints have, comes in any order.
    for name in ("first", "second"):
        write_tensors({"a": torch.arange(6.0), "b": torch.ones(3)}, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"F32","shape":[2,3]', b'"F32","shape":[3,2]'),
        (b'"dtype":"F32"', b'"dtype":"I32"'),
        (b"[1, 2]", b"[1, 3]"),
        (b'"b":', b'"c":'),
        (b"\x00\x00\x80\x3f", b"\x00\x00\x80\x3e"),
        (b"\x00\x00\x80\x3f", b"\x00\x00\xc0\x7f"),
    ],
)
def test_read_tensors__one_changed_byte_anywhere_is_found(tmp_path, old, new):
    file = write(tmp_path)
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))
    with pytest.raises(ValueError, match=r"w.safetensors is missing or damaged .*(checksum|sha256)"):
        read_tensors(file)


def test_read_tensors__a_file_from_elsewhere_has_no_checksum_and_is_taken(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "w.safetensors")
    assert torch.equal(read_tensors(tmp_path / "w.safetensors")["a"], torch.ones(2))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_read_tensors__refuses_what_is_not_finite(tmp_path, value, dtype):
    save_file({"a": torch.tensor([1.0, value]).to(dtype)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="1 of 2 values of a are NaN or infinite"):
        read_tensors(tmp_path / "w.safetensors")


def test_write_tensors__a_full_disk_is_an_oserror_with_its_number(tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("polygrain.store.tensors.save_file", full)
    with pytest.raises(OSError) as raised:
        write(tmp_path)
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == str(tmp_path / "w.safetensors")
