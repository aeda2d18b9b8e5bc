import resource
import subprocess
import sys

import pytest
import torch

from polygrain.clustering.distances import nearest_centroids
from polygrain.compute import device
from polygrain.retrieval.neighbours import search_by_torch
from tests.helpers.pretended_gpu import pretended_gpu


@pytest.fixture
def switches():
    """Torch's own, which hold for the process, are set back."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    torch.use_deterministic_algorithms(False)


def precisions():
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision


def test_best__more_processes_than_gpus(monkeypatch):
    """A flow shows a stage the GPUs that it holds, fewer than its processes."""
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.best() == torch.device("cpu")
    with pretended_gpu():
        with pytest.raises(ValueError, match=r"2 processes .* 1 GPUs.* to 1 at most"):
            device.best()
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert device.best() == torch.device("cuda", 0)


def test_best__the_same_bytes_twice_where_they_are_asked_for(monkeypatch, switches):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with pretended_gpu():
        device.best()
        assert not torch.are_deterministic_algorithms_enabled()
        monkeypatch.setenv("POLYGRAIN_DETERMINISTIC", "1")
        device.best()
    assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    assert device.os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_autocast__float32_is_float32_on_a_gpu(switches):
    torch.set_float32_matmul_precision("high")
    with pretended_gpu():
        for precision, expected in [("float32", "ieee"), ("tf32", "tf32"), ("auto", "ieee"), ("bfloat16", "ieee")]:
            with device.autocast(torch.device("cuda"), precision):
                pass
            assert precisions() == (expected, expected), precision  # a backward pass comes after the block
        with torch.inference_mode(), device.autocast(torch.device("cuda"), "tf32"):
            with device.uncast(torch.device("cuda")):
                assert precisions()[0] == "ieee"
            assert precisions() == ("tf32", "tf32")
        assert precisions() == ("ieee", "ieee")
        device.best()
        assert precisions() == ("ieee", "ieee")


@pytest.mark.parametrize("set_tf32", ["high", "medium", "newer way"])
def test_exact__whatever_the_process_has_set(set_tf32, monkeypatch, switches):
    """Nearest centroids are bounded by float32's rounding, and neighbours are exact."""
    if set_tf32 == "newer way":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision(set_tf32)
    before, seen, addmm, product = precisions()[0], [], torch.addmm, torch.Tensor.__matmul__
    monkeypatch.setattr(torch, "addmm", lambda *a, **k: (seen.append(precisions()[0]), addmm(*a, **k))[1])
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: (seen.append(precisions()[0]), product(a, b))[1])
    x = torch.randn(9, 4)
    nearest_centroids(x, torch.arange(9), x[:3])
    search_by_torch(x.numpy(), x.numpy(), 2, torch.device("cpu"))
    assert seen == ["ieee", "ieee"] and before == precisions()[0] == "tf32"


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
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("POLYGRAIN_PRECISION", raising=False)
    assert device.inference(48) == (128, "float32")
    assert [device.inference(side)[0] for side in (96, 144, 224, 448)] == [32, 16, 8, 8]
    monkeypatch.setenv("POLYGRAIN_BATCH", "7")
    monkeypatch.setenv("POLYGRAIN_PRECISION", "auto")
    assert device.inference(448) == (7, "auto")
    monkeypatch.setenv("POLYGRAIN_BATCH", "0")
    with pytest.raises(ValueError, match="POLYGRAIN_BATCH is '0'"):
        device.inference(48)
    monkeypatch.setenv("POLYGRAIN_PRECISION", "half")
    with pytest.raises(ValueError, match="known: auto, bfloat16, tf32, float32"):
        device.inference(48)


def test_inference__larger_batches_and_tf32_on_a_gpu(monkeypatch):
    monkeypatch.delenv("POLYGRAIN_PRECISION", raising=False)
    with pretended_gpu():
        assert device.inference(224) == (512, "tf32") and device.inference(448)[0] == 128


STEPS = """
import resource, torch
from polygrain.compute.device import keep_memory
keep_memory()
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    maps = [torch.ones(2**exponent) for exponent in (24, 22, 24, 23)]
    del maps
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_keep_memory__what_was_freed_is_taken_again_and_not_asked_for_page_by_page():
    pages = 2**27 // resource.getpagesize()
    assert int(subprocess.check_output([sys.executable, "-c", STEPS])) < pages / 100


def test_for_convolutions__only_on_a_gpu_in_another_order():
    images = torch.rand(2, 3, 5, 5)
    assert device.for_convolutions(images) is images
    with pretended_gpu():
        assert device.for_convolutions(images.to("cuda")).is_contiguous(memory_format=torch.channels_last)


def test_uncast__keeps_the_type_within_autocast():
    x = torch.ones(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        with device.uncast(x.device):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
