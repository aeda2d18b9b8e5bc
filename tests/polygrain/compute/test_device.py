import pytest
import torch

from polygrain.compute import device


def test_autocast__follows_the_precision(monkeypatch):
    cpu, x = torch.device("cpu"), torch.ones(4, 4)
    for precision, native, expected in [
        ("float32", True, torch.float32),
        ("bfloat16", False, torch.bfloat16),
        ("auto", True, torch.bfloat16),
        ("auto", False, torch.float32),
    ]:
        monkeypatch.setattr(device, "has_bfloat16", lambda _, native=native: native)
        with device.autocast(cpu, precision):
            assert (x @ x).dtype == expected, (precision, native)


def test_inference__is_of_the_machine(monkeypatch):
    assert device.inference(48) == device.inference(224) == (128, "float32") and device.inference(448)[0] == 32
    monkeypatch.setenv("POLYGRAIN_BATCH", "7")
    monkeypatch.setenv("POLYGRAIN_PRECISION", "auto")
    assert device.inference(448) == (7, "auto")
    monkeypatch.setenv("POLYGRAIN_BATCH", "0")
    with pytest.raises(ValueError, match="POLYGRAIN_BATCH is '0'"):
        device.inference(48)
    monkeypatch.setenv("POLYGRAIN_PRECISION", "half")
    with pytest.raises(ValueError, match="known: auto, bfloat16, float32"):
        device.inference(48)


def test_uncast__keeps_the_type_within_autocast():
    x = torch.ones(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        with device.uncast(x.device):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
