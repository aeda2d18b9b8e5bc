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
        assert waits.total() == 0 and not torch.ones(2).is_cuda
        assert layer.weight.grad.tolist() == [[4.0] * 3] * 2 and waits.total() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + torch.arange(3),
        lambda x: torch.arange(3)[x.long()],
        lambda x: torch.rand(3, device="cuda", generator=torch.Generator()),
        lambda x: x.numpy(),
    ],
)
def test_pretended_gpu__refuses_what_cuda_refuses(wrong):
    with pretended_gpu(), pytest.raises((RuntimeError, TypeError), match="cuda:0"):
        wrong(torch.ones(3).to("cuda"))
