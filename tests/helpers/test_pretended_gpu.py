import pytest
import torch

from tests.helpers.pretended_gpu import GPU, pretended_gpu


def test_pretended_gpu__computes_what_a_cpu_does_and_says_where():
    with pretended_gpu() as waits:
        layer, x = torch.nn.Linear(3, 2).to("cuda"), torch.ones(4, 3, device="cuda")
        optimizer = torch.optim.Adam(layer.parameters())
        waits.clear()
        with torch.autocast("cuda", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        layer(x).sum().backward()
        optimizer.step()
        assert x.device == (x + 1)[0].device == layer.weight.grad.device == torch.zeros_like(x).device == GPU
        assert optimizer.state[layer.weight]["exp_avg"].is_cuda and not torch.ones(2).is_cuda
        assert waits.total() == 0
        assert layer.weight.grad.tolist() == [[4.0] * 3] * 2 and waits.total() == 1


def test_pretended_gpu__refuses_what_cuda_refuses():
    with pretended_gpu():
        x, here = torch.ones(3).to("cuda"), torch.arange(3)
        for wrong in (
            lambda: x + here,
            lambda: torch.cat([x, here]),
            lambda: here[x.long()],
            lambda: torch.rand(3, device="cuda", generator=torch.Generator()),
        ):
            with pytest.raises(RuntimeError, match="cuda:0"):
                wrong()
        with pytest.raises(TypeError, match="cpu"):
            x.numpy()
        assert (x + torch.tensor(2.0)).is_cuda  # a single number may lie anywhere


@pytest.mark.parametrize(
    ("work", "count"),
    [
        (lambda x: x.cpu(), 1),
        (lambda x: x.to("cpu", non_blocking=True), 0),
        (lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True) + x, 0),
        (lambda x: torch.ones(3).to(x.device), 1),
        (lambda x: float(x[0]), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x[torch.tensor([0])], 1),
        (lambda x: torch.tensor([1.0], device=x.device), 1),
        (lambda x: (x * 2).sum().to(torch.float64), 0),
    ],
)
def test_pretended_gpu__counts_what_waits(work, count):
    with pretended_gpu() as waits:
        x = torch.ones(3, device="cuda")
        work(x)
        assert waits.total() == count
