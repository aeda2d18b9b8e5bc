import pytest
import torch
from torch import nn

from polygrain.compute.graphs import graphed


def build(where):
    torch.manual_seed(0)
    frozen, trained = nn.Conv2d(3, 8, 3).requires_grad_(False), nn.Linear(8, 4)
    frozen.to(where), trained.to(where)
    return (lambda images: trained(frozen(images).mean((2, 3)))), trained


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_graphed__values_and_gradients_are_those_of_the_function(precision, monkeypatch):
    where = torch.device("cuda")
    results = []
    for switch in ("0", "1"):
        monkeypatch.setenv("POLYGRAIN_GRAPHS", switch)
        function, trained = build(where)
        recorded = graphed(function, trained, 5, 8, where, precision)
        optimizer = torch.optim.SGD(trained.parameters(), 0.5)
        for batch in (5, 5, 2, 5):  # the last one of an epoch is smaller
            images = torch.rand(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch)).to(where)
            optimizer.zero_grad()
            recorded(images).float().square().sum().backward()
            optimizer.step()
        results.append([parameter.detach().cpu().clone() for parameter in trained.parameters()])
    for plain, replayed in zip(*results, strict=True):
        assert torch.allclose(plain, replayed, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(results[0][0], build("cpu")[1].weight, atol=1e-2), "nothing was learnt"


def test_graphed__without_a_gpu_is_the_function(monkeypatch):
    monkeypatch.setenv("POLYGRAIN_GRAPHS", "1")
    function, trained = build("cpu")
    images = torch.rand(5, 3, 8, 8)
    assert torch.equal(graphed(function, trained, 5, 8, torch.device("cpu"), "float32")(images), function(images))
