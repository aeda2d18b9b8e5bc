"""With a driver that the test makes: none is needed."""

import sys
from types import SimpleNamespace

import pytest
import torch

from polygrain.runner import gpu


@pytest.fixture
def driver(monkeypatch):
    """A process at work on the second of two GPUs, whose names are not in the driver's order."""
    known = {"GPU-b": (87, 12 * 2**30), "GPU-a": (3, 2**30)}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="ab"[index]))
    fake = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=known.__getitem__,
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=device[0]),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=device[1]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_use__of_the_gpu_at_work(driver):
    assert gpu.use() == {"gpu_percent": 87, "gpu_gib": 12}


def test_use__a_driver_that_does_not_tell_and_none(driver, monkeypatch):
    driver.nvmlDeviceGetUtilizationRates = lambda device: 1 / 0
    assert gpu.use() == {}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert gpu.use() == {}
